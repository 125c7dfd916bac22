"""The interface of an environment. Its functions are pure and handle one environment. Use `vmap` for several."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree


class State(NamedTuple):
    """One environment at one moment.

    - `physics`: the simulator's own state.
    - `observation`: what the agent sees.
    - `friction`: the friction of the floor, a traced value. `state._replace(friction=...)` takes effect at the next
        step, and each environment under `vmap` has its own.
    """

    physics: PyTree
    observation: Float[Array, " observation"]
    friction: Float[Array, ""]


class Outcome(NamedTuple):
    """The result of a step. `terminated` marks a terminal state, not a time limit."""

    state: State
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


@runtime_checkable
class Environment(Protocol):
    """A simulator. Time limits, broken states and new episodes are handled in `rl/rollout.py`."""

    observation_size: int
    action_size: int

    def reset(self, key: PRNGKeyArray, friction: Float[Array, ""]) -> State:
        """A new initial state."""
        ...

    def step(self, state: State, action: Float[Array, " action"]) -> Outcome:
        """One step, at the friction of the state."""
        ...
