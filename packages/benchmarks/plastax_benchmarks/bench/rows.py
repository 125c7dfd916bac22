"""How far the effective rank of some rows, and its gradient, are from those of all rows.

Run with `plastax bench rows`. The gradient is with respect to the kernels that make the features: of one layer with
random inputs, and of a transformer that has learned the bytes of Python files for some steps. Its cosine to the
gradient of all rows, and its norm relative to that, are means over keys; of the effective rank, mean and standard
deviation. The last column is the cosine of the mean gradient over keys: what steps with other choices add up to.
"samples" takes all rows of some sequences, "rows" some rows of all of them, and "project" all rows behind a
projection to some directions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import plastax
from plastax_kernels import set_lapack_threads

from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog


def layer(decay: float, width: int, sequences: int, time: int) -> tuple[Callable, Any, Any]:
    """Features relu(X W), with X normal and its standard deviations falling as i^-decay: function, kernel, inputs."""
    inputs, kernel = jax.random.split(jax.random.key(0))
    scales = jnp.arange(1.0, width // 4 + 1) ** -decay
    x = jax.random.normal(inputs, (sequences, time, width // 4)) * scales
    return lambda w, x: jax.nn.relu(x @ w), jax.random.normal(kernel, (width // 4, width)), x


def transformer(steps: int, width: int, sequences: int, time: int) -> tuple[Callable, Any, Any]:
    """The MLP of the last of two blocks, `width` units wide, after some steps: function, parameters, tokens."""
    import argparse
    import inspect

    text = jnp.frombuffer(inspect.getsource(argparse).encode(), jnp.uint8).astype(jnp.int32)
    model = plastax.models.Transformer(256, time, width // 4, heads=4, depth=2, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.adam(3e-3)

    def draw(key, number):
        starts = jax.random.randint(key, (number, 1), 0, len(text) - time)
        return text[starts + jnp.arange(time + 1)]

    def loss(params, tokens):
        logits, _, _ = eqx.combine(params, static)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def train(params, keys):
        def step(carry, key):
            updates, state = optimizer.update(jax.grad(loss)(carry[0], draw(key, 16)), carry[1])
            return (optax.apply_updates(carry[0], updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), keys)[0][0]

    def features(params, tokens):
        return eqx.combine(params, static)(tokens)[1]["block2.mlp"]

    trained = train(params, jax.random.split(jax.random.key(1), steps))
    return features, trained, draw(jax.random.key(2), sequences)[:, :-1]


KINDS = {"relu of noise": partial(layer, 0.0), "relu, 1/i": partial(layer, 1.0)}
"""Features that are not those of a transformer, by name."""


def measure(name: str, made: tuple[Callable, Any, Any], options: Any, log: ProgressLog) -> list[dict[str, Any]]:
    """Rows of the table for features of one kind."""
    features, params, inputs = made
    total = options.sequences * options.time

    @partial(jax.jit, static_argnames=("samples", "rows", "sketch", "project"))
    def of(params, inputs, key, samples=None, rows=None, sketch=None, project=None):
        inputs = inputs if samples is None else jax.random.choice(key, inputs, (samples,), replace=False)
        rank = plastax.effective_rank
        if project is not None:
            rank = partial(plastax.projected_effective_rank, size=project, key=key)

        def loss(params):
            return plastax.effective_rank_loss(features(params, inputs), rank=rank, rows=rows, sketch=sketch, key=key)

        value, gradient = jax.value_and_grad(loss)(params)
        return -value, ravel_pytree(gradient)[0]

    keys = jax.random.split(jax.random.key(3), options.keys)
    value, gradient = of(params, inputs, keys[0])
    table: list[dict[str, Any]] = [
        {"features": name, "of": f"all {total} rows", "effective rank": f"{float(value):.0f}"}
    ]
    choices = [{"rows": rows} for rows in options.rows]
    choices += [{"samples": max(rows // options.time, 1)} for rows in options.rows]
    choices += [{"sketch": options.sketch}, {"rows": 2 * options.width, "sketch": options.sketch}]
    choices += [{"project": project} for project in options.project]
    for choice in choices:
        words = ", ".join(f"{what}={number}" for what, number in choice.items())
        log(f"{name}, {words}")
        found = [of(params, inputs, key, **choice) for key in keys]
        values = [float(rank) for rank, _ in found]
        norm = float(jnp.linalg.norm(gradient))
        gradients = jnp.stack([each for _, each in found])
        norms = jnp.linalg.norm(gradients, axis=1)
        mean = jnp.mean(gradients, axis=0)
        table.append(
            {
                "features": name,
                "of": words,
                "effective rank": f"{np.mean(values):.0f} +- {np.std(values):.1f}",
                "cosine of the gradient": float(jnp.mean(gradients @ gradient / (norms * norm))),
                "norm": float(jnp.mean(norms)) / norm,
                "cosine of the mean": float(mean @ gradient / (jnp.linalg.norm(mean) * norm)),
            }
        )
    return table


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("rows", __doc__)
    parser.add_argument("--width", type=int, default=512, help="units of the features")
    parser.add_argument("--sequences", type=int, default=128)
    parser.add_argument("--time", type=int, default=64, help="positions of a sequence")
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--sketch", type=int, default=128)
    parser.add_argument("--project", type=int, nargs="+", default=[64, 128, 256], help="directions of projections")
    parser.add_argument("--steps", type=int, default=200, help="training steps of the transformer; 0 leaves it out")
    parser.add_argument("--keys", type=int, default=4)
    options = parser.parse_args(arguments)
    set_lapack_threads(1)
    conditions, log = Conditions(), ProgressLog()
    sizes = (options.width, options.sequences, options.time)
    rows = []
    kinds = KINDS | ({"transformer": partial(transformer, options.steps)} if options.steps else {})
    for name, made in kinds.items():
        rows += measure(name, made(*sizes), options, log)
    title = f"Effective rank of {options.sequences} x {options.time} rows of width {options.width}, and of some of them"
    show(title, rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
