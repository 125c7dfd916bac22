"""The residual network of incremental CIFAR."""

from collections.abc import Sequence
from typing import Any, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._units.description import Units
from .base import Model, as_size, as_sizes, check_batch
from .convolution import Algorithm, check_algorithm
from .nn import BatchNorm, BatchNormState, Conv, Dense, Hidden
from .units import resettable, resettable_chain


ResNetState = dict[str, Any]
"""Running statistics of every BatchNorm, by the name of the block."""

_CONV_INIT = jax.nn.initializers.variance_scaling(2.0, "fan_out", "truncated_normal")
_DENSE_INIT = jax.nn.initializers.variance_scaling(1.0, "fan_out", "truncated_normal")


class NormedConv(eqx.Module):
    """A convolution and its BatchNorm."""

    layer: Conv
    norm: BatchNorm

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int,
        algorithm: Algorithm,
        key: PRNGKeyArray,
    ):
        # Zeros on both sides, as in the paper's table; "SAME" would put them all on one side where the stride is 2.
        padding = kernel_size // 2
        self.layer = Conv(
            in_channels,
            out_channels,
            kernel_size,
            _CONV_INIT,
            stride=stride,
            padding=padding,
            algorithm=algorithm,
            key=key,
        )
        self.norm = BatchNorm(out_channels)

    def __call__(
        self, x: Float[Array, "batch height width in"], state: BatchNormState, *, train: bool
    ) -> tuple[Float[Array, "batch new_height new_width out"], BatchNormState]:
        """The normalized images, and the running statistics after this batch."""
        return self.norm(self.layer(x), state, train=train)


class Block(eqx.Module):
    """Two convolutions beside a skip connection."""

    inner: NormedConv
    outer: NormedConv
    skip: NormedConv | None

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, algorithm: Algorithm, key: PRNGKeyArray):
        inner_key, outer_key, skip_key = jax.random.split(key, 3)
        self.inner = NormedConv(in_channels, out_channels, 3, stride=stride, algorithm=algorithm, key=inner_key)
        self.outer = NormedConv(out_channels, out_channels, 3, stride=1, algorithm=algorithm, key=outer_key)
        if stride == 1 and in_channels == out_channels:
            self.skip = None
        else:
            self.skip = NormedConv(in_channels, out_channels, 1, stride=stride, algorithm=algorithm, key=skip_key)

    def init_state(self) -> dict[str, BatchNormState]:
        """Running means of 0 and variances of 1, for each convolution."""
        convs = {"inner": self.inner, "outer": self.outer, "skip": self.skip}
        return {name: conv.norm.init_state() for name, conv in convs.items() if conv is not None}

    def __call__(
        self, x: Float[Array, "batch height width in"], state: dict[str, BatchNormState], *, train: bool
    ) -> tuple[
        Float[Array, "batch new_height new_width out"],
        Float[Array, "batch new_height new_width out"],
        dict[str, BatchNormState],
    ]:
        """The features of the block, those between its two convolutions, and the running statistics."""
        new = {}
        h, new["inner"] = self.inner(x, state["inner"], train=train)
        inside = jax.nn.relu(h)
        y, new["outer"] = self.outer(inside, state["outer"], train=train)
        if self.skip is not None:
            x, new["skip"] = self.skip(x, state["skip"], train=train)
        return jax.nn.relu(y + x), inside, new


class ResNet18(Model):
    """A ResNet-18 for small images with two hidden dense layers. The defaults are the paper's for incremental CIFAR.

    A 3 x 3 stem, four stages of two blocks with `width`, 2, 4 and 8 times `width` channels (stages 2 to 4 halve the
    image), the mean over positions, and the dense layers. Convolutions have biases. Kernels are drawn from truncated
    normals with variance 2 / fan-out in convolutions and 1 / fan-out in dense layers.

    BatchNorm keeps running statistics in the state. `train` has no default and must be passed at every call.

    Its features are `"stem"`, `"stage1_block1_inner"` (between the two convolutions), `"stage1_block1"`, ...,
    `"dense1"` and `"dense2"`. The dense ones count for effective rank.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        model = plastax.models.ResNet18(10, width=4, dense=(16, 16), key=jax.random.key(0))
        state = model.init_state()
        x = jnp.ones((2, 8, 8, 3))
        logits, features, state = model(x, state, train=True)  # moves the running statistics
        logits, features, _ = model(x, state, train=False)  # uses them
        ```

    ??? cite "Reference"

        He, Zhang, Ren and Sun, *Deep residual learning for image recognition*, CVPR 2016.
    """

    stem: NormedConv
    blocks: tuple[Block, ...]
    hidden: tuple[Hidden, Hidden]
    head: Dense

    def __init__(
        self,
        num_classes: SupportsIndex = 100,
        in_channels: SupportsIndex = 3,
        width: SupportsIndex = 64,
        dense: Sequence[SupportsIndex] = (512, 512),
        *,
        layer_norm: bool = False,
        convolution: Algorithm = "auto",
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `num_classes`: the number of outputs.
        - `in_channels`: the number of channels of an image.
        - `width`: the number of channels of the stem and of the first stage.
        - `dense`: the widths of the two hidden dense layers.
        - `layer_norm`: whether to put a LayerNorm before the activations of the two dense layers.
        - `convolution`: `"cpu"`, `"patches"`, `"xla"`, or `"auto"`: XLA's convolution, on CPU with faster gradients.
        - `key`: for the initial parameters.
        """
        num_classes, in_channels = as_size("num_classes", num_classes), as_size("in_channels", in_channels)
        width, dense = as_size("width", width), as_sizes("dense", dense)
        if len(dense) != 2:
            raise ValueError(f"`dense` must be two widths, got {dense}")
        check_algorithm(convolution)
        stem_key, head_key, *keys = jax.random.split(key, 12)
        self.stem = NormedConv(in_channels, width, 3, stride=1, algorithm=convolution, key=stem_key)
        blocks, size = [], width
        for stage in range(4):
            for stride in (1 if stage == 0 else 2, 1):
                out = width * 2**stage
                blocks.append(Block(size, out, stride=stride, algorithm=convolution, key=keys.pop()))
                size = out
        self.blocks = tuple(blocks)
        first = Dense(size, dense[0], _DENSE_INIT, key=keys.pop())
        second = Dense(dense[0], dense[1], _DENSE_INIT, key=keys.pop())
        self.hidden = (
            Hidden(first, activation="relu", layer_norm=layer_norm),
            Hidden(second, activation="relu", layer_norm=layer_norm),
        )
        self.head = Dense(dense[1], num_classes, _DENSE_INIT, key=head_key)

    def init_state(self, key: PRNGKeyArray | None = None) -> ResNetState:
        """Running means of 0 and variances of 1. No key is needed."""
        blocks = {name: block.init_state() for name, block in zip(_BLOCK_NAMES, self.blocks, strict=True)}
        return {"stem": self.stem.norm.init_state(), **blocks}

    def __call__(
        self, x: Float[Array, "batch height width channels"], state: ResNetState | None = None, *, train: bool
    ) -> tuple[Float[Array, "batch classes"], dict[str, Array], ResNetState]:
        """Runs a batch.

        **Arguments:**

        - `x`: the images, of any height and width.
        - `state`: the running statistics, from `init_state` or from the last call.
        - `train`: whether to normalize with the statistics of the batch and to move the running ones toward them, or
            to normalize with the running ones.

        **Returns:**

        The logits, the hidden features by name, and the state: a new one in training, the same in evaluation.
        """
        if state is None:
            raise ValueError("ResNet18 needs its running statistics: pass `state`, initially `model.init_state()`")
        x = check_batch(x, ("height", "width", self.stem.layer.kernel.shape[2]), self.head.kernel.dtype, "ResNet18")
        features, new = {}, {}
        x, new["stem"] = self.stem(x, state["stem"], train=train)
        x = features["stem"] = jax.nn.relu(x)
        for name, block in zip(_BLOCK_NAMES, self.blocks, strict=True):
            x, features[f"{name}_inner"], new[name] = block(x, state[name], train=train)
            features[name] = x
        x = jnp.mean(x, axis=(1, 2))
        for name, layer in zip(self.rank_layers, self.hidden, strict=True):
            x = features[name] = layer(x)
        return self.head(x), features, new

    @property
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts: the two hidden dense layers."""
        return ("dense1", "dense2")

    def resettable_units(self) -> tuple[Units, ...]:
        """The units that a unit-resetting method may replace: channels inside a block, and hidden dense units.

        Other channels are read through skip connections by many layers, or by all of the rest. The running statistics
        of a replaced channel stay as they are, in the state: they adapt within some tens of training steps.
        The mean of a replaced unit is added to the bias in front of the next BatchNorm, where the running mean still
        fits it.
        """
        inner = tuple(
            resettable(
                self,
                f"{name}_inner",
                lambda params, i=i: params.blocks[i].inner,
                lambda params, i=i: params.blocks[i].outer.layer,
            )
            for i, name in enumerate(_BLOCK_NAMES)
        )
        return inner + resettable_chain(
            self, self.rank_layers, lambda params: params.hidden, lambda params: params.head
        )


_BLOCK_NAMES = tuple(f"stage{stage}_block{block}" for stage in (1, 2, 3, 4) for block in (1, 2))
