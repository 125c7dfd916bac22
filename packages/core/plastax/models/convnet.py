"""The convolutional network of continual ImageNet."""

from collections.abc import Sequence
from typing import Literal, SupportsIndex

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._units.description import Units
from .activations import features_per_unit
from .base import Model, as_size, as_sizes, check_batch
from .convolution import Algorithm, check_algorithm, max_pool
from .nn import Conv, Dense, Hidden
from .units import resettable_chain


class ConvNet(Model):
    """Convolutions, each with an activation and 2 x 2 max-pooling, then dense layers.

    The defaults are the paper's network for continual ImageNet, with 2048 features between convolutions and dense
    layers. With `padding="VALID"` it is the network of Dohare et al., with 512. Kernels are LeCun-normal.

    Its features are `"conv1"`, `"conv2"`, ... (NHWC, after pooling) and `"dense1"`, `"dense2"`, ... The last two dense
    ones count for effective rank.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        model = plastax.models.ConvNet((16, 16, 3), 2, channels=(8, 16), kernel_sizes=(5, 3), key=jax.random.key(0))
        logits, features, _ = model(jnp.zeros((4, 16, 16, 3)))
        features["conv2"].shape  # (4, 4, 4, 16)
        ```

    ??? cite "Reference"

        Dohare et al., *Loss of plasticity in deep continual learning*, Nature 632, 2024.
    """

    convs: tuple[Hidden, ...]
    hidden: tuple[Hidden, ...]
    head: Dense
    in_shape: tuple[int, int, int] = eqx.field(static=True)
    positions: int = eqx.field(static=True)

    def __init__(
        self,
        in_shape: Sequence[SupportsIndex] = (32, 32, 3),
        out_size: SupportsIndex = 2,
        channels: Sequence[SupportsIndex] = (32, 64, 128),
        kernel_sizes: Sequence[SupportsIndex] = (5, 3, 3),
        dense: Sequence[SupportsIndex] = (128, 128),
        *,
        padding: Literal["SAME", "VALID"] = "SAME",
        activation: str = "relu",
        layer_norm: bool = False,
        convolution: Algorithm = "auto",
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_shape`: height, width and channels of an image.
        - `out_size`: the number of outputs.
        - `channels`: the number of channels of each convolution.
        - `kernel_sizes`: the height and width of each convolution's kernel.
        - `dense`: the width of each hidden dense layer.
        - `padding`: `"SAME"` (the paper) or `"VALID"` (Dohare et al.).
        - `activation`: as in [`plastax.models.MLP`][].
        - `layer_norm`: whether to put a LayerNorm before every activation: over channels at each position after a
            convolution, over units after a dense layer.
        - `convolution`: `"cpu"`, `"patches"`, `"xla"`, or `"auto"`: XLA's convolution, on CPU with faster gradients.
        - `key`: for the initial parameters.
        """
        out_size, in_shape = as_size("out_size", out_size), as_sizes("in_shape", in_shape)
        if len(in_shape) != 3:
            raise ValueError(f"`in_shape` must be (height, width, channels), got {in_shape}")
        channels, kernel_sizes = as_sizes("channels", channels), as_sizes("kernel_sizes", kernel_sizes)
        dense = as_sizes("dense", dense)
        if len(channels) != len(kernel_sizes) or not channels or not dense:
            raise ValueError(
                "`channels` and `kernel_sizes` must be of one length, and there must be a convolution and a hidden "
                f"dense layer at least, got {channels=}, {kernel_sizes=}, {dense=}"
            )
        if padding not in ("SAME", "VALID"):
            raise ValueError(f"`padding` must be 'SAME' or 'VALID', got {padding!r}")
        check_algorithm(convolution)
        copies = features_per_unit(activation)
        self.in_shape = (in_shape[0], in_shape[1], in_shape[2])
        self.positions = positions = _positions_left(self.in_shape, kernel_sizes, padding)
        init = jax.nn.initializers.lecun_normal()
        head_key, *keys = jax.random.split(key, 1 + len(channels) + len(dense))
        convs, hidden, size = [], [], in_shape[2]
        for out, kernel_size in zip(channels, kernel_sizes, strict=True):
            conv = Conv(size, out, kernel_size, init, padding=padding, algorithm=convolution, key=keys.pop())
            convs.append(Hidden(conv, activation=activation, layer_norm=layer_norm))
            size = copies * out
        size *= positions
        for out in dense:
            hidden.append(Hidden(Dense(size, out, init, key=keys.pop()), activation=activation, layer_norm=layer_norm))
            size = copies * out
        self.convs = tuple(convs)
        self.hidden = tuple(hidden)
        self.head = Dense(size, out_size, init, key=head_key)

    def __call__(
        self, x: Float[Array, "batch height width channels"], state: PyTree = None, *, train: bool = False
    ) -> tuple[Float[Array, "batch out"], dict[str, Array], PyTree]:
        """Runs a batch.

        **Arguments:**

        - `x`: the images.
        - `state`: passed on as it is: this model has none.
        - `train`: makes no difference here.

        **Returns:**

        The outputs, the hidden features by name, and `state`.
        """
        x = check_batch(x, self.in_shape, self.head.kernel.dtype, "ConvNet")
        conv_names, dense_names = self._names()
        features = {}
        for name, conv in zip(conv_names, self.convs, strict=True):
            x = features[name] = max_pool(conv(x))
        x = x.reshape(x.shape[0], -1)
        for name, layer in zip(dense_names, self.hidden, strict=True):
            x = features[name] = layer(x)
        return self.head(x), features, state

    @property
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts: the last two dense ones."""
        return self._names()[1][-2:]

    def resettable_units(self) -> tuple[Units, ...]:
        """The units that a unit-resetting method may replace: all channels and all hidden dense units.

        The mean of a channel is that of its pooled features, which is what the next layer reads. With `layer_norm` a
        new unit also shifts the other units of its layer, through the mean and the variance that they share.
        """
        conv_names, dense_names = self._names()
        return resettable_chain(
            self,
            conv_names + dense_names,
            lambda params: (*params.convs, *params.hidden),
            lambda params: params.head,
            positions=[1] * (len(conv_names) - 1) + [self.positions] + [1] * len(dense_names),
        )

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (
            tuple(f"conv{i + 1}" for i in range(len(self.convs))),
            tuple(f"dense{i + 1}" for i in range(len(self.hidden))),
        )


def _positions_left(in_shape: tuple[int, int, int], kernel_sizes: Sequence[int], padding: str) -> int:
    height, width, _ = in_shape
    for kernel_size in kernel_sizes:
        lost = kernel_size - 1 if padding == "VALID" else 0
        height, width = max(height - lost, 0) // 2, max(width - lost, 0) // 2
    if height * width == 0:
        raise ValueError(
            f"nothing is left of an image of shape {in_shape} after {len(kernel_sizes)} convolutions with "
            f"kernels {tuple(kernel_sizes)}, padding {padding!r} and halving: use larger images or fewer convolutions"
        )
    return height * width
