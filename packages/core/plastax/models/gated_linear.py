"""The paper's linearized ReLU network."""

import math
from typing import NamedTuple, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._units.description import Units
from .base import Model, as_size, check_batch


class GatedLinearState(NamedTuple):
    """The frozen arrays of a [`plastax.models.GatedLinear`][]."""

    gates: Float[Array, "in width"]
    readout: Float[Array, "width out"]


class GatedLinear(Model):
    r"""A two-layer ReLU network whose gates and readout are frozen: exactly linear in its only parameters.

    $f(x) = W_2^\top (1[W_0^\top x > 0] \odot W_1^\top x) / \sqrt{m}$ for width $m$, without biases, where $W_1$ is
    trained and $W_0$ is the initial value of $W_1$, so that initially it equals a ReLU network. Its tangent kernel
    never changes:
    $\langle x, x' \rangle \frac{1}{m} \sum_h W_{2,ho} W_{2,ho'} 1[W_{0,h}^\top x > 0] 1[W_{0,h}^\top x' > 0]$.

    The frozen arrays are not parameters: they are in the state. Call `init_state` before training, because it copies
    the gates from the current parameters.

    Its features are `"hidden"`.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        model = plastax.models.GatedLinear(784, 10, width=100, key=jax.random.key(0))
        state = model.init_state(jax.random.key(1))
        logits, features, state = model(jnp.ones((32, 784)), state)
        ```
    """

    kernel: Float[Array, "in width"]
    out_size: int = eqx.field(static=True)

    def __init__(
        self,
        in_size: SupportsIndex,
        out_size: SupportsIndex,
        width: SupportsIndex = 1000,
        *,
        rank: SupportsIndex | None = None,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_size`: the number of inputs.
        - `out_size`: the number of outputs.
        - `width`: the number of hidden units.
        - `rank`: the rank of the initial kernel, at most `min(in_size, width)`: a product of two normal matrices whose
            entries have variance 1, too. `None` for independent normal entries.
        - `key`: for the initial kernel.
        """
        in_size, out_size = as_size("in_size", in_size), as_size("out_size", out_size)
        width = as_size("width", width)
        if rank is None:
            self.kernel = jax.random.normal(key, (in_size, width))
        else:
            rank = as_size("rank", rank)
            if rank > min(in_size, width):
                raise ValueError(
                    f"`rank` must be at most min(in_size, width) = {min(in_size, width)}, got {rank}; None is full rank"
                )
            left, right = jax.random.split(key)
            factors = jax.random.normal(left, (in_size, rank)), jax.random.normal(right, (rank, width))
            self.kernel = factors[0] @ factors[1] / math.sqrt(rank)
        self.out_size = out_size

    def init_state(self, key: PRNGKeyArray | None = None) -> GatedLinearState:
        """The frozen arrays: the gates' kernel, a copy of the model's current kernel, and a normal readout.

        **Arguments:**

        - `key`: for the readout; required.
        """
        if key is None:
            raise ValueError("GatedLinear draws its frozen readout with a key: write `model.init_state(key)`")
        # A copy, so that a program may be given both parameters and state to overwrite.
        gates = jnp.array(self.kernel, copy=True)
        return GatedLinearState(gates, jax.random.normal(key, (self.kernel.shape[1], self.out_size)))

    def __call__(
        self, x: Float[Array, "batch in"], state: GatedLinearState | None = None, *, train: bool = False
    ) -> tuple[Float[Array, "batch out"], dict[str, Array], GatedLinearState]:
        """Runs a batch.

        **Arguments:**

        - `x`: the batch.
        - `state`: the frozen arrays, from `init_state`.
        - `train`: makes no difference here.

        **Returns:**

        The outputs, the hidden features by name, and `state`.
        """
        if state is None:
            raise ValueError("GatedLinear needs its frozen arrays: pass `state`, from `model.init_state(key)`")
        x = check_batch(x, self.kernel.shape[:1], self.kernel.dtype, "GatedLinear")
        open_gates = x @ state.gates.astype(x.dtype) > 0
        hidden = open_gates.astype(x.dtype) * (x @ self.kernel)
        output = hidden @ state.readout.astype(x.dtype) / math.sqrt(self.kernel.shape[1])
        return output, {"hidden": hidden}, state

    @property
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts: the hidden layer."""
        return ("hidden",)

    def resettable_units(self) -> tuple[Units, ...]:
        """Raises: a unit's outgoing weights and its gate are frozen, so it cannot be replaced."""
        raise ValueError(
            "GatedLinear has no resettable units: the outgoing weights and the gate of a unit are frozen. "
            "Use a method that does not reset units, or plastax.models.MLP."
        )
