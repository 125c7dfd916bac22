"""Policy and value function for continual reinforcement learning."""

from typing import NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._units.description import Units
from .base import Model, as_size, check_batch
from .mlp import MLP
from .units import resettable_chain


class Gaussian(NamedTuple):
    """Independent normal distributions over continuous actions."""

    mean: Float[Array, "batch actions"]
    log_std: Float[Array, "batch actions"]


class PolicyAndValue(NamedTuple):
    """The output of [`plastax.models.ActorCritic`][] for a batch of observations."""

    policy: Gaussian
    value: Float[Array, " batch"]


class ActorCritic(Model):
    """Two networks of one hidden layer: one for the policy, one for the value. The defaults are the paper's for ant.

    Actions are continuous. Kernels are LeCun-uniform, biases start at zero. The logarithm of the standard deviation is
    a parameter, one for each component of an action, that starts at zero.

    Its features are `"actor"` and `"critic"`; both count for effective rank.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        model = plastax.models.ActorCritic(27, 8, key=jax.random.key(0))
        (policy, value), features, _ = model(jnp.zeros((16, 27)))
        policy.mean.shape  # (16, 8)
        ```
    """

    actor: MLP
    critic: MLP
    log_std: Float[Array, " actions"]

    def __init__(
        self,
        observation_size: SupportsIndex,
        action_size: SupportsIndex,
        width: SupportsIndex = 256,
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `observation_size`: the number of observed values.
        - `action_size`: the number of components of an action.
        - `width`: the number of hidden units of each of the two networks.
        - `activation`: as in [`plastax.models.MLP`][].
        - `layer_norm`: whether to put a LayerNorm before the activations.
        - `key`: for the initial parameters.
        """
        action_size = as_size("action_size", action_size)
        actor_key, critic_key = jax.random.split(key)

        def network(out_size, key):
            return MLP(
                observation_size,
                out_size,
                width,
                depth=1,
                activation=activation,
                layer_norm=layer_norm,
                kernel_init=jax.nn.initializers.lecun_uniform(),
                key=key,
            )

        self.actor = network(action_size, actor_key)
        self.critic = network(1, critic_key)
        self.log_std = jnp.zeros(action_size)

    def __call__(
        self, x: Float[Array, "batch observation"], state: PyTree = None, *, train: bool = False
    ) -> tuple[PolicyAndValue, dict[str, Array], PyTree]:
        """Runs a batch.

        **Arguments:**

        - `x`: the observations.
        - `state`: passed on as it is: this model has none.
        - `train`: makes no difference here.

        **Returns:**

        Policy and value, the hidden features by name, and `state`.
        """
        kernel = self.actor.hidden[0].layer.kernel
        x = check_batch(x, kernel.shape[:1], kernel.dtype, "ActorCritic")
        mean, actor, _ = self.actor(x)
        value, critic, _ = self.critic(x)
        policy = Gaussian(mean, jnp.broadcast_to(self.log_std, mean.shape))
        features = {"actor": actor["dense1"], "critic": critic["dense1"]}
        return PolicyAndValue(policy, value[:, 0]), features, state

    @property
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts: the hidden layers of actor and critic."""
        return ("actor", "critic")

    def resettable_units(self) -> tuple[Units, ...]:
        """The units that a unit-resetting method may replace: the hidden ones of actor and critic.

        With `layer_norm` a new unit also shifts the other units of its layer, through the mean and the variance that
        they share.
        """
        actor = resettable_chain(self, ["actor"], lambda params: params.actor.hidden, lambda params: params.actor.head)
        critic = resettable_chain(
            self, ["critic"], lambda params: params.critic.hidden, lambda params: params.critic.head
        )
        return actor + critic
