"""Effective rank with its gradient for features with many rows: memory and time of the exact forms and the cheap ones.

Run with `plastax bench wide`. "svd" is the naive form, autodiff through `jnp.linalg.svd` of all rows; "exact" is
`plastax.effective_rank` of all rows; "rows" that of some rows; "sketch" that of some rows within some directions;
"sketch of all" that of all rows within as many directions, and "project" that of all rows behind a projection to them.
Memory is what the compiler plans beside the features and their gradient. Nothing is run with --bytes-only; otherwise
forms that would take more than --largest operations are not.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

import plastax
from plastax_kernels import set_lapack_threads

from .effective_rank import svd_effective_rank
from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog, interleaved, medians, ratio


def forms(rows: int, sketch: int) -> dict[str, Callable[[Array, Array], Array]]:
    """Minus the effective rank of [rows, width] features with a random key, by name."""

    def loss(features, key, **settings):
        return plastax.effective_rank_loss(features, key=key, **settings)

    return {
        "svd": lambda features, key: -svd_effective_rank(features),
        "exact": loss,
        "rows": partial(loss, rows=rows),
        "sketch": partial(loss, rows=rows, sketch=sketch),
        "sketch of all": partial(loss, sketch=sketch),
        "project": lambda features, key: loss(
            features, key, rank=partial(plastax.projected_effective_rank, size=sketch, key=key)
        ),
    }


def operations(form: str, number: int, width: int, rows: int, sketch: int) -> float:
    """About how many operations a form takes, those of its decomposition included."""
    number = min(number, rows) if form in ("rows", "sketch") else number
    short, long = sorted((number, width))
    if form == "project":
        return 4.0 * number * (width + sketch) * sketch + 9 * sketch**3
    if form.startswith("sketch"):
        return 24.0 * number * width * sketch + 9 * sketch**3
    return 4.0 * long * short**2 + 9 * short**3 if form != "svd" else 30.0 * long * short**2


def compare(number: int, width: int, options: Any, log: ProgressLog) -> dict[str, Any]:
    """A row of the table."""
    like = jax.ShapeDtypeStruct((number, width), jnp.float32)
    key, row = jax.random.key(0), {"rows x width": f"{number} x {width}", "features MB": 4e-6 * number * width}
    programs = {}
    for name, loss in forms(options.rows, options.sketch).items():
        log(f"compiling {name} for {number} x {width}")
        programs[name] = jax.jit(jax.value_and_grad(loss)).lower(like, key).compile()
        planned = programs[name].memory_analysis()
        assert planned is not None
        row[f"{name} MB"] = 1e-6 * planned.temp_size_in_bytes
    if options.bytes_only:
        return row
    features = jax.nn.relu(jax.random.normal(key, like.shape))
    affordable = {
        name: partial(program, features, key)
        for name, program in programs.items()
        if operations(name, number, width, options.rows, options.sketch) <= options.largest
    }
    seconds = interleaved(affordable, rounds=options.rounds)
    row |= {f"{name} ms": 1e3 * median for name, median in medians(seconds).items()}
    row |= {f"{name} / sketch": ratio(seconds, name, "sketch") for name in affordable if name != "sketch"}
    return row


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("wide", __doc__)
    parser.add_argument("--numbers", type=int, nargs="+", default=[4096, 16384, 65536], help="rows of the features")
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--rows", type=int, default=1024, help="rows that are chosen")
    parser.add_argument("--sketch", type=int, default=256, help="directions of sketch and projection")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=float, default=3e11, help="leave out forms with more operations")
    parser.add_argument("--bytes-only", action="store_true", help="compile, and run nothing")
    options = parser.parse_args(arguments)
    set_lapack_threads(1)
    conditions, log = Conditions(), ProgressLog()
    rows = [compare(number, width, options, log) for width in options.widths for number in options.numbers]
    # All rows of a table have the columns of the first.
    names = list(dict.fromkeys(name for row in rows for name in row))
    rows = [{name: row.get(name) for name in names} for row in rows]
    chosen = f"{options.rows} rows, {options.sketch} directions"
    show(
        f"Effective rank with its gradient of features with many rows; {chosen}", rows, conditions, as_json=options.json
    )


if __name__ == "__main__":
    main()
