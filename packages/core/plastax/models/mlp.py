"""The multilayer perceptron of permuted MNIST."""

from typing import SupportsIndex

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._types import Initializer
from .._units.description import Units
from .activations import features_per_unit
from .base import Model, as_size, check_batch
from .nn import Dense, Hidden
from .units import resettable_chain


class MLP(Model):
    """Dense layers of equal width. The defaults are the paper's network for permuted MNIST.

    Its features are `"dense1"`, `"dense2"`, ...: all hidden layers count for effective rank.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        model = plastax.models.MLP(784, 10, width=100, depth=3, key=jax.random.key(0))
        logits, features, _ = model(jnp.zeros((32, 784)))
        features["dense3"].shape  # (32, 100)
        ```
    """

    hidden: tuple[Hidden, ...]
    head: Dense

    def __init__(
        self,
        in_size: SupportsIndex,
        out_size: SupportsIndex,
        width: SupportsIndex = 1000,
        depth: SupportsIndex = 3,
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        kernel_init: Initializer | None = None,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_size`: the number of inputs.
        - `out_size`: the number of outputs.
        - `width`: the number of units of each hidden layer.
        - `depth`: the number of hidden layers, at least 1.
        - `activation`: `"relu"`, `"leaky_relu"`, `"tanh"`, `"gelu"`, `"silu"`, or `"crelu"` (concatenated ReLU, which
            gives two features for each unit).
        - `layer_norm`: whether to put a LayerNorm before each activation.
        - `kernel_init`: draws the kernels, as in `jax.nn.initializers`. He-uniform by default. Biases start at zero.
        - `key`: for the initial parameters.
        """
        in_size, out_size = as_size("in_size", in_size), as_size("out_size", out_size)
        width, depth = as_size("width", width), as_size("depth", depth)
        copies = features_per_unit(activation)
        init = jax.nn.initializers.he_uniform() if kernel_init is None else kernel_init
        head_key, *keys = jax.random.split(key, depth + 1)
        sizes = [in_size] + [copies * width] * depth
        self.hidden = tuple(
            Hidden(Dense(size, width, init, key=key), activation=activation, layer_norm=layer_norm)
            for size, key in zip(sizes[:-1], keys, strict=True)
        )
        self.head = Dense(sizes[-1], out_size, init, key=head_key)

    def __call__(
        self, x: Float[Array, "batch in"], state: PyTree = None, *, train: bool = False
    ) -> tuple[Float[Array, "batch out"], dict[str, Array], PyTree]:
        """Runs a batch.

        **Arguments:**

        - `x`: the batch.
        - `state`: passed on as it is: this model has none.
        - `train`: makes no difference here.

        **Returns:**

        The outputs, the hidden features by name, and `state`.
        """
        kernel = self.hidden[0].layer.kernel
        x = check_batch(x, kernel.shape[:1], kernel.dtype, "MLP")
        features = {}
        for name, layer in zip(self.rank_layers, self.hidden, strict=True):
            x = features[name] = layer(x)
        return self.head(x), features, state

    @property
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts: all hidden layers."""
        return tuple(f"dense{i + 1}" for i in range(len(self.hidden)))

    def resettable_units(self) -> tuple[Units, ...]:
        """The units that a unit-resetting method may replace: those of all hidden layers.

        With `layer_norm` a new unit also shifts the other units of its layer, through the mean and the variance that
        they share.
        """
        return resettable_chain(self, self.rank_layers, lambda params: params.hidden, lambda params: params.head)
