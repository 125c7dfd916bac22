"""What a plasticity report costs: `plastax bench report`.

For each network and effort, in its own process: the first call with its compilation, later calls with other parameters
and data of equal shapes, the sum of the products that the report makes (their number times the time of one), and 100
steps of plain SGD at the batch size of the problem; then the first call of another process, which finds the compiled
programs in JAX's persistent cache. Inputs are random.
"""

import dataclasses
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .._errors import UsageError
from .._memory import peak_bytes
from ._networks import NETWORKS, STEPS, Network, new_network
from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog, interleaved, medians, ratio


PRODUCTS = 4
"""How many products are timed in a row."""


def use_cache(folder: str) -> None:
    """Keeps all compiled programs of this process in a folder, and takes from it what another one has left there."""
    import jax

    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class Case(NamedTuple):
    """What is measured. `None` stands for the samples of the effort, and for the width of the network."""

    network: str
    effort: str
    samples: int | None
    width: int | None

    def full_effort(self) -> Any:
        """The effort of `plastax_diagnostics`, with this number of samples."""
        import plastax_diagnostics as diagnostics

        effort = getattr(diagnostics, self.effort.upper())
        return effort if self.samples is None else dataclasses.replace(effort, samples=self.samples)


def report(network: Network, effort: Any, key: int) -> tuple[Any, float]:
    """A report on other parameters and data for each key, and its seconds."""
    import jax

    import plastax_diagnostics as diagnostics

    scaled = jax.tree.map(lambda leaf: leaf * (1 + 0.01 * key), network.params)
    drawn = network.rows(key, effort.samples)
    jax.block_until_ready((scaled, drawn))
    budget, begin = diagnostics.StepBudget(0.01, 1000), time.perf_counter()
    found = diagnostics.plasticity_report(
        network.model, "cross_entropy", scaled, drawn, budget, key=jax.random.key(key), effort=effort
    )
    return found, time.perf_counter() - begin


def first_call(case: Case) -> float:
    """The seconds of the first report of this process."""
    return report(new_network(case.network, case.width), case.full_effort(), 0)[1]


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """A row of the table."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import plastax_diagnostics as diagnostics
    from plastax_diagnostics._operators.precision import precision
    from plastax_diagnostics._report.report import FIRST_ORDER, _restarts

    network, effort, count = new_network(case.network, case.width), case.full_effort(), 0
    params = network.params

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

    first_report, first = report(network, effort, count)
    peak = peak_bytes() / 2**30
    drawn, train = network.rows(2, effort.samples), network.sgd()
    batches = network.rows(1, STEPS, network.batch)
    hessian = diagnostics.hessian(network.loss, params, drawn)
    gram = diagnostics.loss_weighted_gram(network.model, "cross_entropy", params, drawn, dtype=effort.dtype)

    def later():
        nonlocal count
        count += 1
        return report(network, effort, count)[0].loss_value

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
        "network": case.network,
        "effort": case.effort,
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


def in_new_process(folder: str, function: Callable, *arguments: Any) -> Any:
    """Calls a function in a process of its own that keeps compiled programs in a folder."""
    with multiprocessing.get_context("spawn").Pool(1, use_cache, (folder,)) as pool:
        return pool.apply(function, arguments)


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
    conditions, rows, log = Conditions(), [], ProgressLog()
    for name in options.networks:
        for effort in options.efforts:
            log(f"{name}, {effort}")
            # Each has its own process: nothing is compiled yet, and the peak of its memory is its own.
            case = Case(name, effort, options.samples, options.width)
            with tempfile.TemporaryDirectory() as folder:
                row = in_new_process(folder, measure, case, options.rounds)
                again = in_new_process(folder, first_call, case)
            position = list(row).index("first call s") + 1
            rows.append(dict([*list(row.items())[:position], ("with cache s", again), *list(row.items())[position:]]))
    title = f"Plasticity reports: first call with compilation, later calls (medians of {options.rounds} rounds)"
    show(title, rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
