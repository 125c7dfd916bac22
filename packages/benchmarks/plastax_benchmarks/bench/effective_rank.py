"""Effective rank with its gradient: plastax's closed form against autodiff through `jnp.linalg.svd`.

Run with `plastax bench effective-rank`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import plastax
from plastax_kernels import set_lapack_threads

from ._numpy_rank import numpy_effective_rank
from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, medians, ratio


SHAPES = (
    (12, 128),
    (100, 1000),
    (128, 256),
    (1200, 128),
    (2048, 256),
    (500, 512),
    (500, 1000),
    (2000, 1000),
    (128, 128),
)


def svd_effective_rank(features):
    """The definition, for autodiff: NaN for dead or duplicate features, and wrong for nearly equal ones."""
    singular = jnp.linalg.svd(features, compute_uv=False)
    share = singular / jnp.sum(singular)
    return jnp.exp(-jnp.sum(share * jnp.log(share)))


def compare(samples: int, width: int, rounds: int) -> dict[str, Any]:
    """A row of the table. The errors of plastax are relative to float64 numpy."""
    ours = jax.jit(jax.value_and_grad(plastax.effective_rank))
    theirs = jax.jit(jax.value_and_grad(svd_effective_rank))
    features = jax.nn.relu(jax.random.normal(jax.random.key(samples * width), (samples, width)))
    seconds = interleaved({"ours": lambda: ours(features), "svd": lambda: theirs(features)}, rounds=rounds)
    value, gradient = (np.asarray(x, np.float64) for x in ours(features))
    true_value, true_gradient = numpy_effective_rank(features)
    error = np.linalg.norm(gradient - true_gradient) / np.linalg.norm(true_gradient)
    return {
        "samples x width": f"{samples} x {width}",
        "plastax ms": 1e3 * medians(seconds)["ours"],
        "svd ms": 1e3 * medians(seconds)["svd"],
        "svd / plastax": ratio(seconds, "svd", "ours"),
        "value error": f"{abs(value - true_value) / true_value:.1e}",
        "gradient error": f"{error:.1e}",
    }


def main(arguments: list[str] | None = None) -> None:
    """Prints a table: shape, milliseconds of both, ratio, and the errors of plastax."""
    parser = bench_parser("effective-rank", __doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds to take medians over")
    parser.add_argument("--largest", type=int, default=2_000_000, help="leave out features with more entries")
    options = parser.parse_args(arguments)
    set_lapack_threads(1)
    conditions, rounds = Conditions(), options.rounds
    rows = [
        compare(samples, width, rounds if samples * width < 10**6 else max(rounds // 3, 1))
        for samples, width in SHAPES
        if samples * width <= options.largest
    ]
    title = f"Effective rank with its gradient; medians of {rounds} rounds, fewer for the largest features"
    show(title, rows, conditions, as_json=options.json, packages=("jax", "jaxlib", "scipy"))


if __name__ == "__main__":
    main()
