"""What a plasticity report costs: `plastax bench report`.

For each network and effort, in its own process and without a cache of compiled programs: the first call with its
compilation, later calls with other parameters and data of equal shapes, the sum of the products that the report makes
(their number times the time of one), and 100 steps of plain SGD at the batch size of the problem. Inputs are random.
"""

import dataclasses
import multiprocessing
import time
from typing import Any

from .._errors import UsageError
from .._memory import peak_bytes
from ._networks import NETWORKS, STEPS, new_network
from .output import Conditions, show
from .parser import bench_parser
from .timing import Tell, interleaved, medians, ratio


PRODUCTS = 4
"""How many products are timed in a row."""


def without_cache() -> None:
    """Nothing that an earlier process has compiled is used again."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)


def measure(name: str, effort_name: str, samples: int | None, width: int | None, rounds: int) -> dict[str, Any]:
    """A row of the table."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import plastax_diagnostics as diagnostics
    from plastax_diagnostics._operators.precision import precision
    from plastax_diagnostics._report.report import FIRST_ORDER, _restarts

    network, count = new_network(name, width), 0
    params, model = network.params, network.model
    effort = getattr(diagnostics, effort_name.upper())
    effort = effort if samples is None else dataclasses.replace(effort, samples=samples)

    def report(key):
        scaled, drawn = jax.tree.map(lambda leaf: leaf * (1 + 0.01 * key), params), network.rows(key, effort.samples)
        jax.block_until_ready((scaled, drawn))
        budget, begin = diagnostics.StepBudget(0.01, 1000), time.perf_counter()
        found = diagnostics.plasticity_report(
            model, "cross_entropy", scaled, drawn, budget, key=jax.random.key(key), effort=effort
        )
        return found, time.perf_counter() - begin

    @eqx.filter_jit
    def products(operator, vector):
        multiply = operator.multiplier()

        def body(_, vectors):
            return jax.tree.map(lambda leaf: leaf / (1 + jnp.max(jnp.abs(leaf))), multiply(vectors))

        return jax.lax.fori_loop(0, PRODUCTS, body, jax.tree.map(lambda leaf: leaf[None], vector))

    def multiplied(operator):
        with precision(operator.dtype, operator):
            ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), operator.in_structure())
            return jax.block_until_ready(products(operator, ones))

    first_report, first = report(count)
    peak = peak_bytes() / 2**30
    drawn, train = network.rows(2, effort.samples), network.sgd()
    batches = network.rows(1, STEPS, network.batch)
    hessian = diagnostics.hessian(network.loss, params, drawn)
    gram = diagnostics.loss_weighted_gram(model, "cross_entropy", params, drawn, dtype=effort.dtype)

    def later():
        nonlocal count
        count += 1
        return report(count)[0].loss_value

    seconds = interleaved(
        {
            "report": later,
            "hessian": lambda: multiplied(hessian),
            "gram": lambda: multiplied(gram),
            "steps": lambda: train(params, batches),
        },
        rounds=rounds,
    )
    assert first_report.residual is not None
    assert first_report.gram is not None
    by_hessian = 0 if first_report.hessian.exact else len(first_report.hessian.nodes)
    by_gram = 0 if first_report.gram.exact else len(first_report.gram.nodes)
    by_gram += _restarts(len(first_report.residual.nodes), FIRST_ORDER)
    seconds["products"] = [
        (by_hessian * one + by_gram * other) / PRODUCTS
        for one, other in zip(seconds["hessian"], seconds["gram"], strict=True)
    ]
    typical = medians(seconds)
    return {
        "network": name,
        "effort": effort_name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "samples": effort.samples,
        "first call s": first,
        "later s": typical["report"],
        "products": by_hessian + by_gram,
        "x its products": ratio(seconds, "report", "products"),
        f"x {STEPS} steps": ratio(seconds, "report", "steps"),
        "batch": network.batch,
        "peak GiB": peak,
    }


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("report", __doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--efforts", nargs="+", choices=["cheap", "full"], default=["cheap"])
    parser.add_argument("--samples", type=int, help="instead of those of the effort (256 and 2000)")
    parser.add_argument("--width", type=int, help="units of the hidden layers of an MLP")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    if options.width is not None and any(name.startswith("convnet") for name in options.networks):
        raise UsageError("--width is for MLPs: choose them with --networks")
    conditions, rows, tell = Conditions(), [], Tell()
    for name in options.networks:
        for effort in options.efforts:
            tell(f"{name}, {effort}")
            # Each has its own process: nothing is compiled yet, and the peak of its memory is its own.
            with multiprocessing.get_context("spawn").Pool(1, without_cache) as pool:
                rows.append(pool.apply(measure, (name, effort, options.samples, options.width, options.rounds)))
    title = f"Plasticity reports: first call with compilation, later calls (medians of {options.rounds} rounds)"
    show(title, rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
