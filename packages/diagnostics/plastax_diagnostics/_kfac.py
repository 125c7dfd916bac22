"""KFAC: Kronecker factors of the Gauss-Newton matrix, layer by layer, and how wrong they are."""

import math
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._kfac_layer import KFACError, KFACFactors, KFACLayer, KFACSharedLayer, Sharing
from ._operators.function import as_function
from ._operators.losses import LossLike, TaskLoss, as_loss
from ._operators.mean import check_mean
from ._operators.precision import cast_floats, precision, working_dtype
from ._operators.samples import as_samples
from ._programs.dense_layers import SharedLayer, dense_layers, shared_layers
from ._programs.size import check_bytes


ModelFunction = Callable[[PyTree, Array], Float[Array, "samples *positions outputs"]]
Where = Callable[[PyTree], Any]


def kfac_layers(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    *,
    dtype: Any = None,
    sharing: Sharing | None = None,
    where: Where | None = None,
) -> dict[str, KFACLayer | KFACSharedLayer]:
    r"""The factors of each dense layer's block of the Gauss-Newton matrix of the mean loss.

    For a layer with inputs $a_n$ the block is $\frac1N \sum_n a_n a_n^\top \otimes \sum_o g_{no} g_{no}^\top$, where
    $g_{no}$ are the columns of the layer's Jacobian times a square root of the curvature of the loss. These are *not*
    loss gradients: with them the block would be the empirical Fisher matrix, which vanishes as the network fits.

    **Weight sharing.** Transformers apply a kernel at every position $t$, and the block is
    $\frac1N \sum_n \sum_o j_{no} j_{no}^\top$ with $j_{no} = \sum_t a_{nt} \otimes g_{nto}$. With `sharing="expand"`,
    each position counts as a sample of its own: the factors are the mean of $a_{nt} a_{nt}^\top$ over samples and
    positions, and the mean of $\sum_{to} g_{nto} g_{nto}^\top$ over samples. It is exact for a linear network with
    squared error whose outputs have positions that do not mix: language models are of this kind. With
    `sharing="reduce"`, the factors are those of the mean of $a_{nt}$ and the sum of $g_{nto}$ over positions. It is
    exact for a linear network with squared error that sums or averages over positions: classifiers of sequences are of
    this kind.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        params = {"w1": jnp.ones((3, 4)), "w2": jnp.ones((4, 2))}
        data = (jnp.eye(3), jnp.array([0, 1, 0]))
        model = lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"]
        layers = diagnostics.kfac_layers(model, "cross_entropy", params, data)
        layers["['w1']"].factors.rank  # 3: as of kfac_factors
        ```

    **Arguments:**

    - `model`: a function `(params, inputs) -> outputs [samples, outputs]`, or with `sharing`
        [samples, positions, outputs]. Dense layers are found in its program, so any framework works; convolutions,
        kernels shared by layers and loops over layers give an error. Normalization layers must be in evaluation mode.
    - `loss`: `"cross_entropy"`, `"squared_error"` (half the squared distance), or a function of (outputs, targets) that
        is a mean over samples and convex in the outputs.
    - `params`: a pytree of arrays.
    - `data`: inputs and targets.
    - `dtype`: float32 or float64 for the network; by default that of the parameters.
    - `sharing`: `"expand"` or `"reduce"` for layers that share a kernel over positions. Without it they give an error.
    - `where`: from the parameters to those of the layers, as in [`plastax_diagnostics.ggn`][]. The others, such as
        embeddings, may be used in any way.

    **Returns:**

    A dictionary from kernel names to [`plastax_diagnostics.KFACLayer`][], or
    [`plastax_diagnostics.KFACSharedLayer`][] for layers with positions, which gives `factors`, `error()` and
    `entry_error(...)`. In float64, on the host.

    ??? cite "Reference"

        Eschenhagen, Immer, Turner, Schneider and Hennig, *Kronecker-Factored Approximate Curvature for Modern Neural
        Network Architectures*, NeurIPS 2023.
    """
    if sharing is not None and sharing not in get_args(Sharing):
        raise ValueError(f"`sharing` must be one of {list(get_args(Sharing))} or None, got {sharing!r}")
    dtype, output_loss = working_dtype(params, dtype), as_loss(loss)
    with precision(dtype, params, data):
        params, (inputs, targets) = cast_floats(params, dtype), cast_floats(data, dtype)
        output_loss.check(jax.eval_shape(model, params, inputs), targets)
        if not output_loss.is_mean:
            objective = TaskLoss(as_function(model), output_loss)
            check_mean(objective, params, as_samples((inputs, targets)), "KFAC averages over samples")
        outputs = model(params, inputs)
        if not bool(jnp.all(jnp.isfinite(outputs))):
            raise ValueError("the network's outputs are not all finite: there is no curvature to factorize")
        if sharing is None and where is None:
            layers = {}
            for name, layer in dense_layers(model, params, inputs).items():
                gradients = _times_root(output_loss, outputs, targets, layer.jacobian)
                layers[name] = KFACLayer(np.asarray(layer.inputs, np.float64), np.asarray(gradients, np.float64))
            return layers
        columns = _root_columns(output_loss, outputs, targets)
        found = shared_layers(model, params, inputs, columns, where)
        return {name: _layer(layer, sharing) for name, layer in found.items()}


def kfac_factors(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    *,
    dtype: Any = None,
    sharing: Sharing | None = None,
    where: Where | None = None,
) -> dict[str, KFACFactors]:
    """The Kronecker factors of each dense layer's block of the Gauss-Newton matrix.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        params = {"w1": jnp.ones((3, 4)), "w2": jnp.ones((4, 2))}
        data = (jnp.eye(3), jnp.array([0, 1, 0]))
        model = lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"]
        factors = diagnostics.kfac_factors(model, "cross_entropy", params, data)
        factors["['w1']"].rank  # 3 x 1: the gradient factor has rank one here
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `dtype`, `sharing`, `where`: as in [`plastax_diagnostics.kfac_layers`][].

    **Returns:**

    A dictionary from kernel names to [`plastax_diagnostics.KFACFactors`][].
    """
    layers = kfac_layers(model, loss, params, data, dtype=dtype, sharing=sharing, where=where)
    return {name: layer.factors for name, layer in layers.items()}


def kfac_error(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    *,
    dtype: Any = None,
    sharing: Sharing | None = None,
    where: Where | None = None,
    chunk: int = 64,
) -> dict[str, KFACError]:
    """How far KFAC is from each dense layer's block of the Gauss-Newton matrix: exact, and without that matrix.

    The cost is that of all inner products between the samples' gradients, (samples x outputs)^2 x width.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        params = {"w1": jnp.ones((3, 4)), "w2": jnp.ones((4, 2))}
        data = (jnp.eye(3), jnp.array([0, 1, 0]))
        model = lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"]
        errors = diagnostics.kfac_error(model, "cross_entropy", params, data)
        errors["['w1']"].relative  # 0.0: the gradient factor is the same for all samples here
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `dtype`, `sharing`, `where`: as in [`plastax_diagnostics.kfac_layers`][].
    - `chunk`: samples at a time on one side of the pairs; memory is `chunk x samples x outputs^2` numbers.

    **Returns:**

    A dictionary from kernel names to [`plastax_diagnostics.KFACError`][].
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    layers = kfac_layers(model, loss, params, data, dtype=dtype, sharing=sharing, where=where)
    return {
        name: layer.error(chunk) if isinstance(layer, KFACLayer) else layer.error() for name, layer in layers.items()
    }


def _times_root(loss, outputs, targets, jacobian):
    roots = jnp.asarray(loss.roots(outputs, targets), jacobian.dtype)
    return jnp.einsum("nab,nai->nbi", roots, jacobian, precision=jax.lax.Precision.HIGHEST)


def _root_columns(loss, outputs, targets):
    """The columns of each sample's root of the curvature, [columns, *outputs.shape]."""
    samples, size, classes = len(outputs), math.prod(outputs.shape[1:]), outputs.shape[-1]
    check_bytes(outputs.dtype.itemsize * samples * size**2, f"the curvature of {samples} samples of {size} outputs")
    roots = jnp.asarray(loss.roots(outputs, targets), outputs.dtype)
    if roots.ndim > 3:
        # Positions do not mix: the root of a sample has a block for each of them.
        roots = roots.reshape(samples, -1, classes, classes)
        apart = jnp.eye(roots.shape[1], dtype=roots.dtype)
        roots = jnp.einsum("npab,pq->npaqb", roots, apart, precision=jax.lax.Precision.HIGHEST)
    return jnp.moveaxis(roots.reshape(samples, size, size), -1, 0).reshape(size, *outputs.shape)


def _layer(layer: SharedLayer, sharing: Sharing | None) -> KFACLayer | KFACSharedLayer:
    inputs, gradients = (np.asarray(array, np.float64) for array in (layer.inputs, layer.gradients))
    if inputs.shape[1] == 1:
        return KFACLayer(inputs[:, 0], gradients[:, :, 0])
    if sharing is None:
        raise ValueError(
            f"params{layer.name} is applied at {inputs.shape[1]} positions of each sample: pass sharing='expand' if "
            "the outputs have positions, too (language models), or 'reduce' if the network averages over them"
        )
    return KFACSharedLayer(inputs, gradients, sharing)
