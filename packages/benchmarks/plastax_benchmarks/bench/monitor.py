"""The share of training time that a monitor takes: `plastax bench monitor`.

For each network, one program of plain SGD steps at the batch size of the problem and one measurement of
`plastax_diagnostics.Monitor` with its default settings are timed in turn. The share is that of a training loop that
measures every 100, or every 1000, steps: t / (t + n s), with t for a measurement and s for a step. Inputs are random.
"""

from typing import Any

import numpy as np

from ._networks import NETWORKS, STEPS, new_network
from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog, Ratio, interleaved, medians


EVERY = (100, 1000)
"""Steps from one measurement to the next."""


def measure(name: str, width: int | None, rounds: int) -> dict[str, Any]:
    """A row of the table."""
    import jax

    import plastax_diagnostics as diagnostics

    network = new_network(name, width)
    params, train = network.params, network.sgd()
    monitor = diagnostics.Monitor(network.model, "cross_entropy", diagnostics.StepBudget(0.01, 1000))
    rows, batches = network.rows(1, diagnostics.CHEAP.samples), network.rows(2, STEPS, network.batch)
    key = jax.random.key(3)
    seconds = interleaved(
        {"monitor": lambda: monitor.measure(params, rows, key)["loss"], "steps": lambda: train(params, batches)},
        rounds=rounds,
    )
    typical, once, step = medians(seconds), np.array(seconds["monitor"]), np.array(seconds["steps"]) / STEPS
    found = {
        "network": name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "batch": network.batch,
        "monitor ms": 1e3 * typical["monitor"],
        "step ms": 1e3 * typical["steps"] / STEPS,
    }
    for every in EVERY:
        shares = 100 * once / (once + every * step)
        found[f"% at every {every}"] = Ratio(float(np.median(shares)), float(shares.min()), float(shares.max()))
    return found


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("monitor", __doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--width", type=int, help="units of the hidden layers of an MLP")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    conditions, rows, log = Conditions(), [], ProgressLog()
    for name in options.networks:
        log(name)
        rows.append(measure(name, None if name.startswith("convnet") else options.width, options.rounds))
    title = f"A monitor beside training: share of the time in percent (medians of {options.rounds} rounds)"
    show(title, rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
