"""Bounds of the effective rank from sketches of several sizes, and the exact value.

Run with `plastax bench sketch`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import plastax
from plastax_kernels import set_lapack_threads

from .output import Conditions, show
from .parser import bench_parser


SAMPLES, WIDTH, SIZES = 1500, 1200, (64, 256, 512)


def spectra():
    """Features with spectra that fall at different rates, by name."""
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(SAMPLES, WIDTH)))
    right, _ = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))
    low_rank = rng.normal(size=(SAMPLES, 20)) @ rng.normal(size=(20, WIDTH))
    named = {
        "rank 50": (left[:, :50]) @ right[:50],
        "1/i": (left / np.arange(1, WIDTH + 1)) @ right,
        "1 to 1e-3": (left * np.logspace(0, -3, WIDTH)) @ right,
        "relu of rank 20": np.maximum(low_rank, 0),
        "relu of noise": np.maximum(rng.normal(size=(SAMPLES, WIDTH)), 0),
    }
    return {name: jnp.asarray(features, jnp.float32) for name, features in named.items()}


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    options = bench_parser("sketch", __doc__).parse_args(arguments)
    set_lapack_threads(1)
    bounds = jax.jit(plastax.effective_rank_bounds, static_argnames="size")
    conditions, rows = Conditions(), []
    for name, features in spectra().items():
        row = {"singular values": name, "effective rank": float(plastax.effective_rank(features))}
        for size in SIZES:
            lower, upper = bounds(features, size=size, key=jax.random.key(1))
            row[f"size {size}"] = f"{float(lower):.0f} to {float(upper):.0f}"
        rows.append(row)
    title = f"Bounds of the effective rank of {SAMPLES} x {WIDTH} features from sketches, and the exact value"
    show(title, rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
