"""Generalised advantage estimation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def generalised_advantages(
    rewards: Float[Array, "time *envs"],
    values: Float[Array, "time *envs"],
    successor_values: Float[Array, "time *envs"],
    terminated: Bool[Array, "time *envs"],
    truncated: Bool[Array, "time *envs"],
    *,
    gamma: float,
    lambda0: float,
) -> Float[Array, "time *envs"]:
    r"""How much better actions were than expected: $A_t = \delta_t + \gamma \lambda A_{t+1}$ within an episode.

    Here $\delta_t = r_t + \gamma V(s'_t) - V(s_t)$, with $V(s'_t) = 0$ after a terminal state. An episode that was cut
    off goes on behind the cut as far as its value knows: $\delta_t$ has $V(s'_t)$, but no later $\delta$ counts.

    **Arguments:**

    - `rewards`, `values`: of each step, and of the observation before it.
    - `successor_values`: of the observation that the step led to, before any restart.
    - `terminated`, `truncated`: whether the episode came to an end there, or was cut off.
    - `gamma`, `lambda0`: the discount and the decay.

    **Returns:**

    The advantages. Together with the values they are the targets of the critic.
    """
    after = jnp.where(terminated, jnp.zeros_like(values), successor_values)
    deltas = rewards + gamma * after - values
    goes_on = jnp.where(terminated | truncated, jnp.zeros_like(values), gamma * lambda0)

    def back(advantage, step):
        delta, decay = step
        advantage = delta + decay * advantage
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(values[0]), (deltas, goes_on), reverse=True)[1]
