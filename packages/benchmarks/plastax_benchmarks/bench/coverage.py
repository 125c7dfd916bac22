"""Whether error bars cover the truth: `plastax bench coverage`.

On a network of about 500 parameters whose eigenvalues are computed exactly, epsilon-ranks are estimated with a single
probe, over many keys, orders and thresholds. A bracket should contain the truth in at least 95 % of all cases.
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

import plastax_diagnostics as diagnostics

from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog


WIDTHS = (10, 20, 12, 5)


def trained_network(key, steps=200):
    """A small tanh network, trained for a while on noisy labels, and its data."""
    keys = jax.random.split(key, 6)
    params = [
        (jax.random.normal(each, (a, b)) * np.float32(1 / np.sqrt(a)), jnp.zeros(b))
        for each, a, b in zip(keys, WIDTHS, WIDTHS[1:], strict=False)
    ]
    inputs = jax.random.normal(keys[4], (200, WIDTHS[0]))
    labels = jnp.argmax(inputs[:, : WIDTHS[-1]] + 0.5 * jax.random.normal(keys[5], (200, WIDTHS[-1])), axis=1)
    loss = diagnostics.task_loss(network, "cross_entropy")

    def step(_, params):
        gradient = jax.grad(loss)(params, (inputs, labels))
        return jax.tree.map(lambda value, slope: value - 0.3 * slope, params, gradient)

    return jax.jit(lambda params: jax.lax.fori_loop(0, steps, step, params))(params), (inputs, labels)


def network(params, inputs):
    """Dense layers with tanh between them."""
    *hidden, (kernel, bias) = params
    for w, b in hidden:
        inputs = jnp.tanh(inputs @ w + b)
    return inputs @ kernel + bias


def coverage(operator, truth, *, orders, shares, keys):
    """A row for each order and threshold: the truth, the fraction of brackets that contain it, their mean width, ..."""
    largest = max(abs(node) for node in truth.extremes[:2])
    found, log = {}, ProgressLog()
    for order in orders:
        log(f"order {order}")
        found[order] = [
            diagnostics.spectrum(operator, jax.random.key(key), order=order, exact=False) for key in range(keys)
        ]
    rows = []
    for order, spectra in found.items():
        for share in shares:
            eps = share * largest
            expected = truth.epsilon_rank(eps).value
            estimates = [spectrum.epsilon_rank(eps) for spectrum in spectra]
            rows.append(
                {
                    "order": order,
                    "eps": share,
                    "truth": expected,
                    "mean value": _mean(estimate.value for estimate in estimates),
                    "mean width": _mean(estimate.upper - estimate.lower for estimate in estimates),
                    "covered": _mean(estimate.lower <= expected <= estimate.upper for estimate in estimates),
                    "by 2 SE alone": _mean(
                        abs(estimate.value - expected) <= 2 * estimate.standard_error for estimate in estimates
                    ),
                    "resolved": _mean(estimate.resolved for estimate in estimates),
                }
            )
    return rows


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    parser = bench_parser("coverage", __doc__)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--orders", type=int, nargs="+", default=[20, 60, 120, 250, 537])
    parser.add_argument("--shares", type=float, nargs="+", default=[1e-4, 1e-3, 1e-2, 1e-1, 3e-1])
    options = parser.parse_args(arguments)
    conditions = Conditions()
    params, data = trained_network(jax.random.key(0))
    operator = diagnostics.hessian(diagnostics.task_loss(network, "cross_entropy"), params, data)
    truth = diagnostics.exact_spectrum(operator)
    rows = coverage(operator, truth, orders=options.orders, shares=options.shares, keys=options.keys)
    overall = {name: _mean(row[name] for row in rows) for name in ("covered", "by 2 SE alone")}
    title = f"{operator.in_size()} parameters, one probe, {options.keys} keys; eps relative to the largest eigenvalue"
    show(title, [*rows, {"order": "overall"} | overall], conditions, as_json=options.json)


if __name__ == "__main__":
    main()
