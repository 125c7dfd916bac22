"""The programs of `plastax bench growth`: what each costs by arithmetic, and how to run it at a size."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import plastax
import plastax_diagnostics as diagnostics
from plastax.models import MLP


INPUTS, OUTPUTS = 64, 10
WIDTH, DEPTH, SAMPLES, ORDER = 256, 3, 200, 8
STEPS = 10
"""Training steps of one call."""

FLOAT = 4
"""Bytes of a number in float32."""


class Series(NamedTuple):
    """One program at several sizes.

    - `name`: what the program does.
    - `against`: what grows.
    - `sizes`: four sizes.
    - `program`: from a size to a function without arguments.
    - `work`: from a size to the number of operations, or of bytes if these take the time.
    - `bytes`: from a size to the bytes of the arrays that have to exist at the same time.
    """

    name: str
    against: str
    sizes: tuple[int, ...]
    program: Callable[[int], Callable[[], Any]]
    work: Callable[[int], float]
    bytes: Callable[[int], float]


def parameters(width: int = WIDTH, depth: int = DEPTH) -> int:
    """The number of parameters of the network."""
    return (INPUTS + 1) * width + (depth - 1) * (width + 1) * width + (width + 1) * OUTPUTS


def network(width: int = WIDTH, depth: int = DEPTH) -> MLP:
    """A network with ReLU, in which the kernels between hidden layers dominate."""
    return MLP(INPUTS, OUTPUTS, width=width, depth=depth, key=jax.random.key(0))


def examples(samples: int) -> tuple[jax.Array, jax.Array]:
    """Random inputs and labels."""
    inputs = jax.random.normal(jax.random.key(1), (samples, INPUTS))
    return inputs, jax.random.randint(jax.random.key(2), (samples,), 0, OUTPUTS)


def loss(model: MLP, data: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The mean cross-entropy."""
    inputs, labels = data
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(model(inputs)[0], labels))


def training(batch: int, width: int = WIDTH, depth: int = DEPTH, seeds: int = 1) -> Callable[[], Any]:
    """Steps of SGD. Each call continues with the parameters of the last one, which are donated."""
    data = examples(batch)
    start = jax.tree.map(lambda leaf: jnp.stack(seeds * [leaf]), network(width, depth))

    def steps(model):
        def step(model, _):
            gradient = jax.grad(loss)(model, data)
            return jax.tree.map(lambda parameter, slope: parameter - 1e-3 * slope, model, gradient), None

        return jax.lax.scan(step, model, length=STEPS)[0]

    compiled = jax.jit(jax.vmap(steps), donate_argnums=0)
    held = [start]

    def train():
        held[0] = compiled(held[0])
        return held[0]

    return train


def rank_gradient(width: int = WIDTH, depth: int = DEPTH) -> Callable[[], Any]:
    """The gradient of the effective rank of all hidden layers."""
    model, inputs = network(width, depth), examples(SAMPLES)[0]

    def negative_rank(model, inputs):
        return -plastax.effective_rank_loss(model(inputs)[1])

    return partial(jax.jit(jax.grad(negative_rank)), model, inputs)


def product(width: int = WIDTH, depth: int = DEPTH, samples: int = SAMPLES) -> Callable[[], Any]:
    """A Hessian-vector product."""
    model = network(width, depth)
    operator = diagnostics.hessian(loss, model, examples(samples))
    return partial(jax.jit(lambda operator, vector: operator.mv(vector)), operator, model)


def lanczos(width: int = WIDTH, depth: int = DEPTH) -> Callable[[], Any]:
    """Lanczos on the Hessian."""
    model = network(width, depth)
    operator = diagnostics.hessian(loss, model, examples(SAMPLES))
    return lambda: diagnostics.lanczos(operator, model, ORDER).diagonal


def spectrum(order: int = ORDER, probes: int = 1, samples: int = SAMPLES) -> Callable[[], Any]:
    """The spectrum of the Hessian from random probes."""
    operator = diagnostics.hessian(loss, network(), examples(samples))
    options = {"order": order, "probes": probes, "exact": False}
    return lambda: diagnostics.spectrum(operator, jax.random.key(3), **options).nodes


def exact_rank(samples: int) -> Callable[[], Any]:
    """The epsilon-rank of the loss-weighted Gram matrix, from all of its entries."""
    operator = diagnostics.loss_weighted_gram(
        lambda model, inputs: model(inputs)[0], "cross_entropy", network(), examples(samples)
    )
    return lambda: diagnostics.exact_gram(operator).count_above(1e-6)


def feature_rank(samples: int) -> Callable[[], Any]:
    """The effective rank of one matrix of features."""
    features = jax.random.normal(jax.random.key(4), (samples, WIDTH))
    return partial(jax.jit(plastax.effective_rank), features)


def _of_network(against: str, sizes: tuple[int, ...]) -> list[Series]:
    """Everything that is measured for networks of several widths or depths."""

    def count(size):
        return parameters(**{against: size})

    def units(size):
        return size * DEPTH if against == "width" else WIDTH * size

    def batch_bytes(size):
        # Parameters and gradient; activations, their slopes and those of the loss.
        return FLOAT * (2 * count(size) + 3 * 100 * units(size))

    def rank_bytes(size):
        # The same, and features with their gradient in float64.
        return FLOAT * (2 * count(size) + 7 * SAMPLES * units(size))

    def product_bytes(size):
        # Parameters, vector and product; activations, their tangents and their cotangents.
        return FLOAT * (3 * count(size) + 3 * SAMPLES * units(size))

    def rank_work(size):
        width, depth = (size, DEPTH) if against == "width" else (WIDTH, size)
        small, large = sorted((width, SAMPLES))
        return 6 * SAMPLES * count(size) + depth * (4 * small * small * large + 10 * small**3)

    def make(program, *fixed):
        return lambda size: program(*fixed, **{against: size})

    return [
        Series("training, batch 1", against, sizes, make(training, 1), count, lambda size: 2 * FLOAT * count(size)),
        Series("training, batch 100", against, sizes, make(training, 100), count, batch_bytes),
        Series("effective-rank gradient", against, sizes, make(rank_gradient), rank_work, rank_bytes),
        Series("Hessian-vector product", against, sizes, make(product), count, product_bytes),
        Series(
            f"Lanczos, order {ORDER}",
            against,
            sizes,
            make(lanczos),
            count,
            lambda size: product_bytes(size) + FLOAT * ORDER * count(size),
        ),
    ]


def all_series() -> list[Series]:
    """All series but the one over tasks."""
    count = parameters()
    rows = 3 * FLOAT * WIDTH * DEPTH

    def doubled(first: int) -> tuple[int, ...]:
        return tuple(first * 2**power for power in range(4))

    def lanczos_work(order):
        # A Hessian-vector product has about twice the operations of a gradient. Two products with the basis follow it.
        return order * (12 * SAMPLES + 4 * order) * count

    def gram_bytes(samples):
        # In float64: two factors of a layer, their product and the sum over layers; inputs and Jacobians of layers.
        side = samples * OUTPUTS
        return 8 * (4 * side**2 + 2 * side * (INPUTS + WIDTH * DEPTH))

    def gram_work(samples):
        side = samples * OUTPUTS
        return side**3 / 3 + 2 * side**2 * (INPUTS + WIDTH * DEPTH)

    return [
        *_of_network("width", doubled(128)),
        *_of_network("depth", doubled(2)),
        Series(
            "Hessian-vector product", "samples", doubled(250), lambda n: product(samples=n), float,
            lambda n: 3 * FLOAT * count + rows * n,
        ),
        Series(
            f"spectrum, order {ORDER}", "samples", doubled(250), lambda n: spectrum(samples=n), float,
            lambda n: FLOAT * (ORDER + 3) * count + rows * n,
        ),
        Series("epsilon-rank, exact", "samples", doubled(25), exact_rank, gram_work, gram_bytes),
        Series(
            "effective rank", "samples", doubled(1000), feature_rank, lambda n: 2 * n * WIDTH**2 + 10 * WIDTH**3,
            # Features in float32 and in float64, and their Gram matrix in float64.
            lambda n: (FLOAT + 8) * n * WIDTH + 8 * WIDTH**2,
        ),
        Series(
            "spectrum", "order", doubled(8), lambda order: spectrum(order=order), lanczos_work,
            lambda order: FLOAT * (order + 3) * count + rows * SAMPLES,
        ),
        Series(
            f"spectrum, order {ORDER}", "probes", doubled(1), lambda probes: spectrum(probes=probes), float,
            # Up to four probes share each evaluation. The others follow.
            lambda probes: min(probes, 4) * (FLOAT * (ORDER + 3) * count + rows * SAMPLES),
        ),
        Series(
            "training, batch 1", "seeds", doubled(2), lambda seeds: training(1, seeds=seeds), float,
            lambda seeds: 2.0 * FLOAT * count * seeds,
        ),
    ]  # fmt: skip
