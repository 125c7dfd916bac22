"""The cases of `bench kernels`: operations at the shapes of the four benchmarks, each with several implementations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

import plastax_kernels as kernels


# The windows of features whose effective rank the benchmarks compute: [samples, width].
WINDOWS = {"mnist": (100, 1000), "imagenet": (1200, 128), "cifar": (500, 512), "ant": (2048, 256)}
# A small window, of the size that the Jacobi kernel is made for.
WINDOWS |= {"small": (64, 1000)}
# Dense networks of the benchmarks (the dense part, where there are convolutions before it).
NETWORKS = {"mnist": (784, 1000, 1000, 1000, 10), "imagenet": (2048, 128, 128, 2), "ant": (27, 256, 8)}
HESSIAN_SAMPLES = 2000


@dataclass(frozen=True)
class Case:
    """One operation at one shape.

    **Arguments:**

    - `operation`, `shape`: a short description.
    - `paths`: jitted functions of `operands` that all compute the same thing, by name; the first is the XLA path.
    - `operands`: the arrays.
    - `flops`: nominal operations, the same for all paths. A path that does less work shows up as faster.
    - `transferred`: the number of bytes that have to be read or written at least once.
    """

    operation: str
    shape: str
    paths: dict[str, Callable[..., Any]]
    operands: tuple[Any, ...]
    flops: int
    transferred: int


def cases(operations: tuple[str, ...], triton: bool, probes: int) -> Iterator[Case]:
    """The cases of the named operations, made one at a time."""
    for operation in operations:
        yield from OPERATIONS[operation](triton, probes)


def _paths(function, triton, **others):
    backends = ("xla", "triton") if triton else ("xla",)
    paths = {name: jax.jit(partial(function, backend=name)) for name in backends}
    return paths | {name: jax.jit(other) for name, other in others.items()}


def _draw(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def _gram_cases(triton, probes):
    for name, (samples, width) in WINDOWS.items():
        side, depth = sorted((samples, width))
        features = _draw(samples, width)
        flops, transferred = side * (side + 1) * depth, 4 * (samples * width + side * side)
        yield Case("gram", f"{name} {samples}x{width}", _paths(kernels.gram, triton), (features,), flops, transferred)


def _effective_rank_cases(triton, probes):
    def by_svd(features):
        def rank(features):
            singular = jnp.linalg.svd(features, compute_uv=False)
            share = singular / jnp.sum(singular)
            return jnp.exp(-jnp.sum(share * jnp.log(share)))

        return jax.value_and_grad(rank)(features)

    for name, (samples, width) in WINDOWS.items():
        side, depth = sorted((samples, width))
        # Gram matrix, eigendecomposition with vectors (about 9 n^3), gradient matrix and gradient.
        flops = side * (side + 1) * depth + 9 * side**3 + 2 * side**3 + 2 * side * side * depth
        paths = _paths(kernels.effective_rank_and_gradient, triton, svd_autodiff=by_svd)
        shape = f"{name} {samples}x{width}"
        yield Case("effective_rank", shape, paths, (_draw(samples, width),), flops, 8 * samples * width)


def _dense_cases(triton, probes):
    for name, sizes in NETWORKS.items():
        width, units = sizes[1], sizes[2]
        operands = (
            _draw(HESSIAN_SAMPLES, width),
            _draw(probes, HESSIAN_SAMPLES, width, seed=1),
            _draw(width, units, seed=2),
            _draw(probes, width, units, seed=3),
            _draw(units, seed=4),
            _draw(probes, units, seed=5),
        )
        flops = 2 * (1 + 2 * probes) * HESSIAN_SAMPLES * width * units
        transferred = 4 * (1 + probes) * (HESSIAN_SAMPLES * (width + units) + width * units + units)
        shape = f"{name} {HESSIAN_SAMPLES}x{width}x{units}, {probes} probes"
        paths = _paths(kernels.dense_relu_tangents, triton)
        yield Case("dense_relu_tangents", shape, paths, operands, flops, transferred)


def _hvp_cases(triton, probes):
    for name, sizes in NETWORKS.items():
        layers = list(pairwise(sizes))
        params = [(_draw(a, b) * (2 / a) ** 0.5, jnp.zeros(b)) for a, b in layers]
        vectors = [(_draw(probes, a, b, seed=1), _draw(probes, b, seed=2)) for a, b in layers]
        batch = (_draw(HESSIAN_SAMPLES, sizes[0], seed=3), jnp.arange(HESSIAN_SAMPLES) % sizes[-1])
        weights = [a * b for a, b in layers]
        # Forward and backward once, and for each probe two products forward and four backward; the first layer's
        # inputs do not move, which saves three of them.
        products = 2 * sum(weights) - weights[0] + probes * (6 * sum(weights) - 4 * weights[0])
        activations = 2 * (1 + probes) * HESSIAN_SAMPLES * sum(sizes)
        yield Case(
            "mlp_hvp",
            f"{name} {'-'.join(map(str, sizes))}, {probes} probes",
            _paths(kernels.mlp_hvp, triton, vmap_jvp_grad=_hvp_by_autodiff),
            (params, batch, vectors),
            2 * HESSIAN_SAMPLES * products,
            4 * (activations + (1 + 2 * probes) * sum(weights)),
        )


def _hvp_by_autodiff(params, batch, vectors):
    inputs, labels = batch

    def loss(params):
        values = inputs
        for kernel, bias in params[:-1]:
            values = jax.nn.relu(values @ kernel + bias)
        logs = jax.nn.log_softmax(values @ params[-1][0] + params[-1][1])
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))

    return jax.vmap(lambda vector: jax.jvp(jax.grad(loss), (params,), (vector,))[1])(vectors)


OPERATIONS = {
    "gram": _gram_cases,
    "effective_rank": _effective_rank_cases,
    "dense": _dense_cases,
    "hvp": _hvp_cases,
}
