"""Effective rank with its gradient: plastax's closed form against autodiff through `jnp.linalg.svd`.

Run with `plastax bench effective-rank`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import plastax
from plastax_kernels import set_lapack_threads

from ._numpy_rank import numpy_effective_rank
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


def main(arguments: list[str] | None = None) -> None:
    """Prints a table: shape, milliseconds of both, ratio, and the errors of plastax relative to float64 numpy."""
    parser = bench_parser("effective-rank", __doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds to take medians over")
    rounds = parser.parse_args(arguments).rounds
    set_lapack_threads(1)
    ours = jax.jit(jax.value_and_grad(plastax.effective_rank))
    theirs = jax.jit(jax.value_and_grad(svd_effective_rank))
    print(
        f"{'samples x width':>16} {'plastax':>10} {'svd':>10} {'ratio':>6} {'value error':>12} {'gradient error':>15}"
    )
    for samples, width in SHAPES:
        normal = jax.random.normal(jax.random.key(samples * width), (samples, width))
        features = jax.nn.relu(normal)
        seconds = interleaved(
            {"ours": lambda features=features: ours(features), "theirs": lambda features=features: theirs(features)},
            rounds=rounds if samples * width < 10**6 else max(rounds // 3, 1),
        )
        typical = medians(seconds)
        value, gradient = (np.asarray(x, np.float64) for x in ours(features))
        true_value, true_gradient = numpy_effective_rank(features)
        print(
            f"{samples:>8} x {width:<5} {1e3 * typical['ours']:>7.2f} ms {1e3 * typical['theirs']:>7.2f} ms "
            f"{ratio(seconds, 'theirs', 'ours').median:>5.2f}x {abs(value - true_value) / true_value:>12.1e} "
            f"{np.linalg.norm(gradient - true_gradient) / np.linalg.norm(true_gradient):>15.1e}"
        )


if __name__ == "__main__":
    main()
