"""Low-rank adapters (LoRA) for the kernels of any network."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._checks import check_count
from ._effective_rank.select import LayerFilter, select_layers
from ._numerics import apply_update
from ._transforms.parameter_roles import check_output_axis
from ._types import Scalar


class Adapter(NamedTuple):
    """A low-rank addition to a kernel: `inputs @ down @ up` is added to `inputs @ kernel`.

    - `down`: to the few directions of the adapter, LoRA's A.
    - `up`: from them to the outputs, LoRA's B. It starts at zero, so that the network starts as it was.
    """

    down: Float[Array, "in rank"]
    up: Float[Array, "rank out"]


def low_rank_adapters(
    params: PyTree, rank: int, *, kernels: LayerFilter, output_axis: int = -1, key: PRNGKeyArray
) -> dict[str, Adapter]:
    """New low-rank adapters (LoRA) for some kernels of a network, in any framework.

    The adapters are the parameters to train; the network's own are constants. So whatever the optimizer adds to the
    gradient, [`plastax.l2_er`][] included, reaches the adapters alone. [`plastax.adapter_features`][] returns their
    features: few directions, for which effective rank costs next to nothing.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        model = plastax.models.Transformer(256, 16, width=16, heads=2, depth=2, key=jax.random.key(0))
        adapters = plastax.low_rank_adapters(model, 4, kernels="blocks/*/mlp/out/kernel", key=jax.random.key(1))

        def features(adapters, tokens):
            _, hidden, _ = plastax.with_adapters(model, adapters)(tokens)
            inputs = {f"blocks/{i}/mlp/out/kernel": hidden[f"block{i + 1}.mlp"] for i in range(2)}
            return plastax.adapter_features(adapters, inputs)

        optimizer = optax.chain(plastax.l2_er(features, weight_decay=1e-4, er_weight=1e-3), optax.adam(1e-3))
        opt_state = optimizer.init(adapters)
        ```

    **Arguments:**

    - `params`: the parameters or the model.
    - `rank`: the number of directions of each adapter.
    - `kernels`: which arrays, by their paths with slashes, as in [`plastax.select_layers`][]. Vectors among them (the
        biases of a selected layer) get none.
    - `output_axis`: -1 for kernels [inputs, outputs] (Flax, plastax), 0 for [outputs, inputs] (Equinox, PyTorch).
    - `key`: for the initial values of `down`, normal with variance 1 / inputs.

    **Returns:**

    A dictionary from paths to [`plastax.Adapter`][], for [`plastax.with_adapters`][].

    ??? cite "Reference"

        Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, ICLR 2022.
    """
    check_count("rank", rank)
    check_output_axis(output_axis)
    chosen = {name: leaf for name, leaf in select_layers(params, kernels).items() if jnp.ndim(leaf) != 1}
    if not chosen:
        raise ValueError(f"`kernels`={kernels!r} selects vectors only: adapters are for matrices")
    adapters = {}
    for (name, kernel), each in zip(chosen.items(), jax.random.split(key, len(chosen)), strict=True):
        if jnp.ndim(kernel) != 2 or not jnp.issubdtype(kernel.dtype, jnp.floating):
            raise ValueError(
                f"an adapter needs a kernel with two axes and floating point numbers, but {name!r} has shape "
                f"{jnp.shape(kernel)} and dtype {kernel.dtype}: choose others with `kernels`"
            )
        inputs, outputs = kernel.shape if output_axis == -1 else kernel.shape[::-1]
        if rank > min(inputs, outputs):
            raise ValueError(f"rank={rank} is more than the {min(inputs, outputs)} directions of {name!r}")
        down = jax.random.normal(each, (inputs, rank), kernel.dtype) / jnp.sqrt(jnp.asarray(inputs, kernel.dtype))
        adapters[name] = Adapter(down, jnp.zeros((rank, outputs), kernel.dtype))
    return adapters


def with_adapters(params: Any, adapters: dict[str, Adapter], *, scale: Scalar = 1.0, output_axis: int = -1) -> Any:
    """A network's parameters with its adapters added to the kernels. The parameters themselves are constants.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        params = {"dense": {"kernel": jnp.ones((6, 4)), "bias": jnp.zeros(4)}}
        adapters = plastax.low_rank_adapters(params, 2, kernels="dense", key=jax.random.key(0))
        plastax.with_adapters(params, adapters)  # equal to params until the adapters are trained
        ```

    **Arguments:**

    - `params`: the parameters or the model that the adapters were made for.
    - `adapters`: from [`plastax.low_rank_adapters`][].
    - `scale`: a factor of what the adapters add.
    - `output_axis`: as in [`plastax.low_rank_adapters`][].

    **Returns:**

    The same structure. Derivatives with respect to `params` are zero.
    """
    check_output_axis(output_axis)
    left = dict(adapters)

    def add(path, leaf):
        adapter = left.pop(jax.tree_util.keystr(path, simple=True, separator="/"), None)
        if not isinstance(leaf, jax.Array):
            return leaf
        leaf = jax.lax.stop_gradient(leaf)
        if adapter is None:
            return leaf
        product = adapter.down @ adapter.up
        product = product if output_axis == -1 else product.T
        if product.shape != leaf.shape:
            raise ValueError(f"an adapter of shape {product.shape} does not fit a kernel of shape {leaf.shape}")
        return apply_update(leaf, jnp.asarray(scale, product.dtype) * product)

    added = jax.tree_util.tree_map_with_path(add, params)
    if left:
        raise ValueError(
            f"the parameters have no arrays named {list(left)}: pass those that the adapters were made for"
        )
    return added


def adapter_features(
    adapters: dict[str, Adapter], inputs: Mapping[str, Float[Array, "*batch in"]]
) -> dict[str, dict[str, Float[Array, "*batch features"]]]:
    """The features of low-rank adapters: what LoRA's A and B make of the inputs of their layers.

    For each adapter `{"down": inputs @ down, "up": inputs @ down @ up}`. Effective rank of the first has a gradient
    with respect to `down` and to whatever is in front of the layer; that of the second with respect to `up`, too.
    `layers="*/down"` selects A's features alone.

    As long as `up` is zero, as at the start, its features are zero: their effective rank is 0, and so is its gradient.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        params = {"dense": {"kernel": jnp.ones((6, 4)), "bias": jnp.zeros(4)}}
        adapters = plastax.low_rank_adapters(params, 2, kernels="dense", key=jax.random.key(0))
        features = plastax.adapter_features(adapters, {"dense/kernel": jnp.eye(6)})
        features["dense/kernel"]["down"].shape  # (6, 2)
        features["dense/kernel"]["up"].shape  # (6, 4)
        ```

    **Arguments:**

    - `adapters`: from [`plastax.low_rank_adapters`][].
    - `inputs`: for each adapter, by the same name, the inputs of its layer: [samples, in], or [batch, time, in].

    **Returns:**

    A dictionary with the names of the adapters, for [`plastax.effective_rank_loss`][] or as the result of a features
    function of [`plastax.l2_er`][].
    """
    if set(inputs) != set(adapters):
        raise ValueError(f"each adapter needs the inputs of its layer: there are {list(adapters)}, got {list(inputs)}")
    features = {}
    for name, adapter in adapters.items():
        down = inputs[name] @ adapter.down
        features[name] = {"down": down, "up": down @ adapter.up}
    return features
