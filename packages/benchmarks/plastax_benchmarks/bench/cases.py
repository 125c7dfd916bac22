"""The cases of `bench kernels`: operations at the shapes of the four benchmarks, each with several implementations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import plastax_kernels as kernels

from .peaks import Precision


# The windows of features whose effective rank the benchmarks compute: [samples, width].
WINDOWS = {"mnist": (100, 1000), "imagenet": (1200, 128), "cifar": (500, 512), "ant": (2048, 256)}
# A small window, which one program of the Triton kernel takes as a whole.
WINDOWS |= {"small": (64, 1000)}
# The Triton path of the effective rank ends here.
LARGEST_SIDE = 128
# Dense networks of the benchmarks (the dense part, where there are convolutions before it).
NETWORKS = {"mnist": (784, 1000, 1000, 1000, 10), "imagenet": (2048, 128, 128, 2), "ant": (27, 256, 8)}
HESSIAN_SAMPLES = 2000


class Path(NamedTuple):
    """One implementation.

    **Arguments:**

    - `function`: of the case's operands.
    - `precision`: of its products, for the roofline.
    """

    function: Callable[..., Any]
    precision: Precision


@dataclass(frozen=True)
class Case:
    """One operation at one shape.

    **Arguments:**

    - `operation`, `shape`: a short description.
    - `batch`: the number of matrices or networks.
    - `paths`: implementations that all compute the same thing, by name; the first is the XLA path.
    - `operands`: the arrays.
    - `truth`: the results in float64, by numpy on the host.
    - `tolerance`: the largest error relative to the largest entry of each result.
    - `flops`: nominal operations, the same for all paths. A path that does less work shows up as faster.
    - `transferred`: the number of bytes that have to be read or written at least once.
    """

    operation: str
    shape: str
    batch: int
    paths: dict[str, Path]
    operands: tuple[Any, ...]
    truth: Callable[[], Any]
    tolerance: float
    flops: int
    transferred: int


def cases(operations: Sequence[str], triton: bool, probes: int, batches: Sequence[int]) -> Iterator[Case]:
    """The cases of the named operations, made one at a time."""
    for operation in operations:
        yield from OPERATIONS[operation](triton, probes, batches)


def relu_features(samples: int, width: int, batch: int, *, worn: bool) -> np.ndarray:
    """Features of three-layer ReLU networks, computed in float32 as in training.

    Untrained ones have singular values down to 1e-3 or 1e-4 of the largest. The weights of worn ones lose directions:
    their features reach down to 1e-6, and have dead units and less than full rank.
    """
    every = []
    for seed in range(batch):
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((samples, 64), np.float32)
        for _ in range(3):
            weights = rng.standard_normal((features.shape[1], width), np.float32) * np.sqrt(2 / features.shape[1])
            if worn:
                left, singular, right = np.linalg.svd(weights, full_matrices=False)
                weights = left * np.geomspace(3, 3e-3, len(singular)) @ right
            bias = rng.standard_normal(width) * (0.3 if worn else 0)
            features = np.maximum(features @ weights + bias, 0).astype(np.float32)
        every.append(features)
    return np.stack(every)


def _backends(function, triton, precision):
    names = ("xla", "triton") if triton else ("xla",)
    return {name: Path(partial(function, backend=name), precision) for name in names}


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gram64(features: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Gram matrices on the smaller side, by numpy in float64."""
    wide = features.astype(np.float64)
    if mask is not None:
        wide = np.where(mask[..., None], wide, 0)
    return wide @ wide.mT if wide.shape[-2] <= wide.shape[-1] else wide.mT @ wide


def _gram_cases(triton, probes, batches):
    for name, (samples, width) in WINDOWS.items():
        side, depth = sorted((samples, width))
        for batch in batches:
            features = _normal(batch, samples, width)
            mask = np.random.default_rng(1).random((batch, samples)) < 0.7
            weights = _normal(batch, side, side, seed=2)
            flops, transferred = batch * side * (side + 1) * depth, 4 * batch * (samples * width + side * side)
            for direction, function, operands, truth, factor in (
                ("forward", kernels.gram, (features,), partial(gram64, features), 1),
                ("masked", kernels.gram, (features, mask), partial(gram64, features, mask), 1),
                ("backward", _gram_gradient, (features, weights), partial(_gram_gradient64, features, weights), 3),
            ):
                yield Case(
                    f"gram, {direction}",
                    f"{name} {samples}x{width}",
                    batch,
                    _backends(function, triton, "float32"),
                    tuple(map(jnp.asarray, operands)),
                    truth,
                    1e-5,  # Sums of up to 2048 rounded products.
                    factor * flops,
                    factor * transferred,
                )


def _gram_gradient(features, weights, *, backend):
    return jax.grad(lambda features: jnp.sum(kernels.gram(features, backend=backend) * weights))(features)


def _gram_gradient64(features, weights):
    wide, both = features.astype(np.float64), weights.astype(np.float64) + weights.mT
    return both @ wide if wide.shape[-2] <= wide.shape[-1] else wide @ both


def _effective_rank_cases(triton, probes, batches):
    for name, (samples, width) in WINDOWS.items():
        side, depth = sorted((samples, width))
        for batch in batches:
            for kind in ("untrained", "worn", "masked"):
                features = relu_features(samples, width, batch, worn=kind == "worn")
                mask = np.random.default_rng(1).random((batch, samples)) < 0.7 if kind == "masked" else None
                operands = (jnp.asarray(features), None if mask is None else jnp.asarray(mask))
                for direction in ("forward", "backward") if kind == "untrained" else ("backward",):
                    forward = direction == "forward"
                    # Gram matrix, eigendecomposition with vectors (about 9 n^3), gradient matrix and gradient.
                    flops = side * (side + 1) * depth + 9 * side**3
                    flops += 0 if forward else 2 * side**3 + 2 * side * side * depth
                    yield Case(
                        f"effective_rank, {direction}",
                        f"{name} {samples}x{width}, {kind}",
                        batch,
                        _backends(_rank if forward else _rank_and_gradient, triton and side <= LARGEST_SIDE, "float64"),
                        operands,
                        partial(_rank64, features, mask, forward),
                        1e-3,
                        batch * flops,
                        batch * (4 if forward else 8) * samples * width,
                    )


def _rank(features, mask, *, backend):
    return (kernels.effective_rank_and_gradient(features, mask, backend=backend)[0],)


def _rank_and_gradient(features, mask, *, backend):
    return kernels.effective_rank_and_gradient(features, mask, backend=backend)


def _rank64(features, mask, forward):
    wide = features.astype(np.float64)
    if mask is not None:
        wide = np.where(mask[..., None], wide, 0)
    left, singular, right = np.linalg.svd(wide, full_matrices=False)
    kept = singular > 1e-6 * singular[..., :1]
    total = np.sum(singular * kept, axis=-1, keepdims=True)
    share = singular * kept / total
    logs = np.log(np.where(kept, share, 1))
    entropy = -np.sum(share * logs, axis=-1, keepdims=True)
    slope = np.where(kept, -np.exp(entropy) * (logs + entropy) / total, 0)
    rank = np.exp(entropy)[..., 0]
    return (rank,) if forward else (rank, (left * slope[..., None, :]) @ right)


def hvp_operands(sizes: Sequence[int], probes: int, samples: int) -> tuple[Any, Any, Any]:
    """Parameters, batch and vectors for `plastax_kernels.mlp_hvp`."""
    layers = list(pairwise(sizes))
    params = [(_normal(a, b) * np.float32((2 / a) ** 0.5), np.zeros(b, np.float32)) for a, b in layers]
    vectors = [(_normal(probes, a, b, seed=1), _normal(probes, b, seed=2)) for a, b in layers]
    batch = (_normal(samples, sizes[0], seed=3), np.arange(samples, dtype=np.int32) % sizes[-1])
    return params, batch, vectors


def _hvp_cases(triton, probes, batches):
    for name, sizes in NETWORKS.items():
        operands = hvp_operands(sizes, probes, HESSIAN_SAMPLES)
        weights = [a * b for a, b in pairwise(sizes)]
        # Forward and backward once, and for each probe two products forward and four backward; the first layer's
        # inputs do not move, which saves three of them.
        products = 2 * sum(weights) - weights[0] + probes * (6 * sum(weights) - 4 * weights[0])
        activations = 2 * (1 + probes) * HESSIAN_SAMPLES * sum(sizes)
        paths = {
            "xla": Path(kernels.mlp_hvp, "float32"),
            "tf32x3": Path(partial(kernels.mlp_hvp, precision="tf32x3"), "tf32x3"),
            "vmap_jvp_grad": Path(hvp_by_autodiff, "float32"),
        }
        yield Case(
            "mlp_hvp",
            f"{name} {'-'.join(map(str, sizes))}, {probes} probes",
            1,
            paths if jax.default_backend() == "gpu" else {key: paths[key] for key in ("xla", "vmap_jvp_grad")},
            jax.tree.map(jnp.asarray, operands),
            partial(_hvp64, *operands),
            1e-4,
            2 * HESSIAN_SAMPLES * products,
            4 * (activations + (1 + 2 * probes) * sum(weights)),
        )


def _hvp64(params, batch, vectors):
    # Automatic differentiation in float64, on the host.
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        wide = jax.tree.map(lambda leaf: leaf.astype(np.float64) if leaf.dtype == np.float32 else leaf, (params, batch))
        tangents = jax.tree.map(lambda leaf: leaf.astype(np.float64), vectors)
        return jax.tree.map(np.asarray, jax.jit(hvp_by_autodiff)(*wide, tangents))


def hvp_by_autodiff(params: Any, batch: Any, vectors: Any) -> Any:
    """The same by `vmap(jvp(grad))`."""
    inputs, labels = batch

    def loss(params):
        values = inputs
        for weights, bias in params[:-1]:
            values = jax.nn.relu(values @ weights + bias)
        logs = jax.nn.log_softmax(values @ params[-1][0] + params[-1][1])
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))

    return jax.vmap(lambda vector: jax.jvp(jax.grad(loss), (params,), (vector,))[1])(vectors)


OPERATIONS = {"gram": _gram_cases, "effective_rank": _effective_rank_cases, "hvp": _hvp_cases}
