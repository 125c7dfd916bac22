"""Hessian-vector products of a dense network for several vectors at once: `mlp_hvp` against `vmap(jvp(grad))`.

Run with `plastax bench hvp`. The two programs take turns, and ratios are those within a round.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from plastax_kernels import mlp_hvp

from .cases import HESSIAN_SAMPLES, NETWORKS, hvp_by_autodiff, hvp_operands
from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, medians, ratio


PROBES = (1, 4, 8)
OURS, AUTODIFF = "mlp_hvp", "vmap(jvp(grad))"


def rows(sizes: Sequence[int], samples: int, probes: Sequence[int], rounds: int) -> Iterator[dict[str, Any]]:
    """The rows of the table."""
    for number in probes:
        operands = jax.tree.map(jnp.asarray, hvp_operands(sizes, number, samples))
        functions = {AUTODIFF: hvp_by_autodiff, OURS: mlp_hvp}
        programs = {name: partial(jax.jit(function), *operands) for name, function in functions.items()}
        seconds = interleaved(programs, rounds=rounds)
        typical = medians(seconds)
        yield {
            "probes": number,
            f"{AUTODIFF} s": typical[AUTODIFF],
            f"{OURS} s": typical[OURS],
            "ratio": ratio(seconds, AUTODIFF, OURS),
        }


def main(arguments: list[str] | None = None) -> None:
    """Prints medians of the times of both programs, and the median of their ratios."""
    parser = bench_parser("hvp", __doc__)
    parser.add_argument("--probes", type=int, nargs="+", default=PROBES, help="vectors at once")
    parser.add_argument("--sizes", type=int, nargs="+", default=NETWORKS["mnist"], help="units of each layer")
    parser.add_argument("--samples", type=int, default=HESSIAN_SAMPLES)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    conditions = Conditions()
    found = list(rows(options.sizes, options.samples, options.probes, options.rounds))
    network = "-".join(map(str, options.sizes))
    title = f"Hessian-vector products, {network}, {options.samples} samples, cross-entropy: {options.rounds} rounds"
    show(title, found, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
