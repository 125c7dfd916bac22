"""The kernel of a linearized ReLU network converges to a closed form that ignores permutations of the inputs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import plastax_diagnostics as diagnostics

from ..report.style import PAGE, figure_style, new_figure, save_figure
from .claim import Claim
from .figure import Drawn, Material, PaperFigure, no_runs
from .scales import LAPTOP, PAPER


if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (10, 30, 100, 300, 1000, 3000)


class Distances(NamedTuple):
    """Relative distances between kernels, in the Frobenius norm, `[width, seed]`.

    - `to_limit`: from the kernel of a network to the closed form.
    - `between`: from the kernel on permuted inputs to the one on plain inputs.
    - `of_limit`: the same for the closed form, a single number.
    - `widest`, `limit`: a kernel of the largest width, and the closed form.
    """

    widths: tuple[int, ...]
    to_limit: np.ndarray
    between: np.ndarray
    of_limit: float
    widest: np.ndarray
    limit: np.ndarray


def gated_linear(frozen, kernel, inputs):
    """A two-layer ReLU network with its gates and its readout frozen: linear in `kernel`."""
    gates, readout = frozen
    open_gates = (inputs @ gates > 0).astype(inputs.dtype)
    return (open_gates * (inputs @ kernel)) @ readout / kernel.shape[1] ** 0.5


def network_kernel(inputs, width, outputs, key):
    """The Gram matrix of the network's Jacobian, from products with it: [samples x outputs, samples x outputs]."""
    gate_key, readout_key = jax.random.split(key)
    gates = jax.random.normal(gate_key, (inputs.shape[1], width))
    frozen = gates, jax.random.normal(readout_key, (width, outputs))
    model = jax.tree_util.Partial(gated_linear, frozen)
    return np.asarray(diagnostics.dense(diagnostics.ntk(model, gates, inputs, reduction="sum")))


def kernel_distances(
    widths: Sequence[int] = WIDTHS, seeds: int = 3, samples: int = 12, dimension: int = 20, outputs: int = 2
) -> Distances:
    """Compares the kernels of random networks on random inputs, plain and permuted, with the infinite-width kernel.

    **Arguments:**

    - `widths`: of the networks.
    - `seeds`: the number of networks of each width.
    - `samples`, `dimension`: the number of inputs and their size.
    - `outputs`: of the networks.
    """
    data_key, permutation_key, network_key = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(data_key, (samples, dimension))
    permuted = inputs[:, jax.random.permutation(permutation_key, dimension)]
    limit, limit_permuted = (
        np.asarray(jnp.kron(diagnostics.gated_linear_kernel(each), jnp.eye(outputs))) for each in (inputs, permuted)
    )

    def relative(left, right):
        return float(np.linalg.norm(left - right) / np.linalg.norm(limit))

    to_limit, between = np.zeros((2, len(widths), seeds))
    plain = limit
    for row, width in enumerate(widths):
        for seed in range(seeds):
            key = jax.random.fold_in(network_key, seed)
            plain, other = (network_kernel(each, width, outputs, key) for each in (inputs, permuted))
            to_limit[row, seed] = relative(plain, limit)
            between[row, seed] = relative(other, plain)
    return Distances(tuple(widths), to_limit, between, relative(limit_permuted, limit), plain, limit)


def kernel_figure(found: Distances) -> "Figure":
    """Distances over widths, and all entries of the widest network's kernel against the closed form."""
    with figure_style():
        figure = new_figure(PAGE, 2.9)
        left, right = figure.subplots(1, 2)
        widths = np.asarray(found.widths, float)
        for values, name, color in (
            (found.to_limit, "network to closed form", "#1f5a99"),
            (found.between, "permuted inputs to plain inputs", "#d9822b"),
        ):
            left.plot(widths, values.mean(axis=1), "o-", color=color, label=name, ms=4)
            left.fill_between(widths, values.min(axis=1), values.max(axis=1), color=color, alpha=0.2, lw=0)
        guide = found.to_limit[0].mean() * np.sqrt(widths[0] / widths)
        left.plot(widths, guide, "--", color="#444444", label=r"$\propto 1/\sqrt{\mathrm{width}}$")
        left.set(xscale="log", yscale="log", xlabel="width", ylabel="relative distance (Frobenius norm)")
        left.set_title("distances shrink with the width\n(bands: all seeds)")
        left.legend()
        low, high = found.limit.min(), found.limit.max()
        right.plot([low, high], [low, high], color="#444444", linewidth=1)
        right.plot(found.limit.ravel(), found.widest.ravel(), ".", color="#1f5a99", markersize=4)
        right.set(xlabel="entry of the closed form", ylabel=f"entry of a network's kernel, width {found.widths[-1]}")
        right.set_title("all entries of both kernels")
    return figure


def kernel_claims(found: Distances) -> list[Claim]:
    """The closed form is the same for permuted inputs, and networks approach it like one over the square root."""
    slopes = [
        float(np.polyfit(np.log(found.widths), np.log(values.mean(1)), 1)[0])
        for values in (found.to_limit, found.between)
    ]
    rounding = 1e-5  # Of sums of float32 in another order.
    return [
        Claim(
            "permuting the pixels does not change the infinite-width kernel",
            "agrees" if found.of_limit < rounding else "disagrees",
            f"relative distance of the closed forms {found.of_limit:.1e}",
            {"distance": found.of_limit},
        ),
        Claim(
            "at finite width, kernels of permuted tasks only differ by fluctuations that vanish with the width",
            "agrees" if all(-0.65 < slope < -0.35 for slope in slopes) else "disagrees",
            f"distances fall like width to the power {slopes[0]:.2f} (to the closed form) and {slopes[1]:.2f} (between "
            "permutations); -0.5 is expected",
            {"slope_to_limit": slopes[0], "slope_between": slopes[1]},
        ),
    ]


def draw_kernel(material: Material) -> Drawn:
    """Computes the kernels, draws the figure, and checks both claims."""
    found = kernel_distances()
    return Drawn(save_figure(kernel_figure(found), material.out / FIGURE.name), tuple(kernel_claims(found)))


FIGURE = PaperFigure(
    "kernel-permutation",
    "the lemma that the infinite-width kernel of the linearized network is invariant to permutations of the pixels",
    "Both distances follow the dashed line to zero, so at infinite width all permuted tasks have the same kernel.",
    no_runs,
    draw_kernel,
    {LAPTOP: 20.0, PAPER: 20.0},
)
