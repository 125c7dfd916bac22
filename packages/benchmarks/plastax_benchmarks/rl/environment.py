"""What PPO asks of an environment. Everything is for one environment, pure, and made for `vmap`."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree


class State(NamedTuple):
    """One environment at one moment.

    - `physics`: whatever the simulator keeps.
    - `observation`: what the agent sees.
    - `friction`: of the floor. It is traced: `state._replace(friction=...)` takes effect from the next step on, and
        each of many environments under `vmap` has its own.
    """

    physics: PyTree
    observation: Float[Array, " observation"]
    friction: Float[Array, ""]


class Outcome(NamedTuple):
    """What a step led to. A `terminated` episode has come to its natural end."""

    state: State
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


@runtime_checkable
class Environment(Protocol):
    """A simulator. It knows nothing of time limits, broken states and restarts: see `rl/episodes.py`."""

    observation_size: int
    action_size: int

    def reset(self, key: PRNGKeyArray, friction: Float[Array, ""]) -> State:
        """A new start."""
        ...

    def step(self, state: State, action: Float[Array, " action"]) -> Outcome:
        """One step, at the friction of the state."""
        ...
