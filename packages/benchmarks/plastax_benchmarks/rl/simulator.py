"""Brax's ant without work that has no effect. Importing it needs brax."""

from typing import Any

import jax
import numpy as np
from brax import kinematics
from brax.envs.ant import Ant


class LeanAnt(Ant):
    """Brax's ant, which computes the angles of its joints once per step instead of once per frame.

    A step is ten frames of the physics. In both backends, a frame depends on the positions and velocities of the links,
    and on joint angles only by way of the actuators. The ant's motors ignore them. So angles are only needed after the
    last frame, for the observation.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.check(self.sys)

    @staticmethod
    def check(system: Any) -> None:
        """Raises an error if actuators depend on joint angles, as they may in another version of brax."""
        actuator = system.actuator
        if np.any(actuator.bias_q) or np.any(actuator.bias_qd):
            raise ValueError("the ant's actuators depend on joint angles, so these are needed in every frame")

    def pipeline_step(self, pipeline_state: Any, action: jax.Array) -> Any:
        """All frames of a step, and then the joint angles."""
        angles = {"q": pipeline_state.q, "qd": pipeline_state.qd}

        def frame(state, _):
            after = self._pipeline.step(self.sys, state.replace(**angles), action, self._debug)
            # What is not carried to the next frame is not computed.
            return after.replace(q=None, qd=None), None

        before = pipeline_state.replace(q=None, qd=None)
        after, _ = jax.lax.scan(frame, before, length=self._n_frames)
        q, qd = kinematics.inverse(self.sys, after.j, after.jd)
        return after.replace(q=q, qd=qd)
