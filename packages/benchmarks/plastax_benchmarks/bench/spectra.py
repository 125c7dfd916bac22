"""Spectra of one Hessian by several libraries: `plastax bench spectra`.

Stochastic Lanczos quadrature with one probe on the Hessian of a 784-100-100-10 network: ours, matfree (with full
reorthogonalization), curvlinops (which does not reorthogonalize) and PyHessian (which does, vector by vector). Weights
and samples are the same. All run in one process, interleaved. Largest eigenvalues must agree. The last two need
PyTorch, pip install "plastax[bench]". Without it, their rows are left out.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

import plastax_diagnostics as diagnostics

from .lanczos import WIDTHS, loss, matfree_lanczos, network
from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, medians, ratio


OURS = "plastax"
AGREEMENT = 1e-3
"""The largest relative difference of largest eigenvalues. They have converged long before the last step."""

Program = Callable[[], Any]
"""Returns the Ritz values, as something that numpy can read."""


def of_jax(params: Any, data: Any, order: int) -> dict[str, Program]:
    """Ours and matfree."""
    operator = diagnostics.hessian(loss, params, data)
    flat, _ = ravel_pytree(params)
    programs: dict[str, Program] = {
        OURS: lambda: diagnostics.spectrum(operator, jax.random.key(1), order=order, exact=False).nodes[0]
    }
    try:
        theirs = matfree_lanczos(params, data, order)
    except SystemExit as missing:
        _left_out(missing)
        return programs
    start = jax.random.normal(jax.random.key(1), flat.shape)
    return programs | {"matfree": lambda: _ritz_values(*theirs(start, params, data))}


def _ritz_values(diagonal: Any, off_diagonal: Any) -> np.ndarray:
    matrix = np.diag(np.asarray(diagonal, np.float64)) + np.diag(np.asarray(off_diagonal, np.float64), -1)
    return np.linalg.eigvalsh(matrix)


def of_torch(params: Any, data: Any, order: int) -> dict[str, Program]:
    """Those of curvlinops and PyHessian that are installed."""
    # Threads of PyTorch that wait actively make it up to a hundred times slower when any other program runs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        _left_out(missing)
        return {}
    layers = []
    for kernel, bias in params:
        layer = torch.nn.Linear(*kernel.shape)
        layer.weight.data, layer.bias.data = (torch.tensor(np.asarray(part)) for part in (kernel.T, bias))
        layers += [layer, torch.nn.ReLU()]
    model, criterion = torch.nn.Sequential(*layers[:-1]), torch.nn.CrossEntropyLoss()
    pair = torch.tensor(np.asarray(data[0])), torch.tensor(np.asarray(data[1], np.int64))
    torch.manual_seed(1)
    programs: dict[str, Program] = {}
    try:
        from curvlinops import HessianLinearOperator  # pyright: ignore[reportMissingImports]
        from curvlinops.papyan2020traces.spectrum import fast_lanczos  # pyright: ignore[reportMissingImports]

        operator = HessianLinearOperator(model, criterion, list(model.parameters()), [pair], check_deterministic=False)
        programs["curvlinops"] = lambda: fast_lanczos(operator, order)[0].numpy()
    except ImportError as missing:
        _left_out(missing)
    try:
        from pyhessian import hessian  # pyright: ignore[reportMissingImports]

        # PyHessian calls `torch.eig`, which PyTorch no longer has, on a matrix of this order.
        torch.eig = _eig
        programs["PyHessian"] = lambda: np.asarray(
            hessian(model, criterion, data=pair, cuda=False).density(iter=order, n_v=1)[0][0]
        )
    except ImportError as missing:
        _left_out(missing)
    return programs


def _eig(matrix: Any, eigenvectors: bool) -> tuple[Any, Any]:
    """As `torch.eig` was, for symmetric matrices: real and imaginary parts of eigenvalues, and eigenvectors."""
    import torch  # pyright: ignore[reportMissingImports]

    values, vectors = torch.linalg.eigh(matrix)
    return torch.stack([values, torch.zeros_like(values)], dim=1), vectors


def _left_out(missing: BaseException) -> None:
    print(f"plastax bench: left out, {missing}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("spectra", __doc__)
    parser.add_argument("--order", type=int, default=90)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--width", type=int, default=WIDTHS[1])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    widths = (WIDTHS[0], options.width, options.width, WIDTHS[-1])
    keys = jax.random.split(jax.random.key(0), 3)
    params = network(keys[0], widths)
    data = (
        jax.random.uniform(keys[1], (options.samples, widths[0])),
        jax.random.randint(keys[2], (options.samples,), 0, widths[-1]),
    )
    conditions = Conditions()
    programs = of_jax(params, data, options.order) | of_torch(params, data, options.order)
    largest = {name: float(np.max(program())) for name, program in programs.items()}
    seconds = interleaved(programs, rounds=options.rounds)
    rows = [
        {
            "library": name,
            "ms per step": 1e3 * middle / options.order,
            f"x {OURS}": ratio(seconds, name, OURS),
            "largest eigenvalue": largest[name],
        }
        for name, middle in medians(seconds).items()
    ]
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    title = f"Spectrum of a Hessian, order {options.order}, one probe, {size:,} parameters, {options.samples} samples"
    packages = ("jax", "jaxlib", "matfree", "torch", "curvlinops-for-pytorch", "pyhessian")
    show(title, rows, conditions, as_json=options.json, packages=packages)
    wrong = {name: value for name, value in largest.items() if abs(value / largest[OURS] - 1) > AGREEMENT}
    if wrong:
        raise SystemExit(f"largest eigenvalues differ from ours, {largest[OURS]:.6g}: {wrong}")


if __name__ == "__main__":
    main()
