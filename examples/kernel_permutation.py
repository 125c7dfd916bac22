"""The kernel of a gated linear network converges to a closed form that is invariant to permutations of the inputs.

For each width, the tangent kernel of a linearized ReLU network is computed on a few inputs and on the same inputs with
their coordinates permuted, and both are compared with the infinite-width kernel. The distances fall like one over the
square root of the width: at infinite width, all permuted tasks have the same kernel.

    python examples/kernel_permutation.py --out kernel.png
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import plastax_diagnostics as diagnostics


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


def main(out=None, *, widths=(10, 100, 1000), seeds=3, samples=12, dimension=20, outputs=2):
    data_key, permutation_key, network_key = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(data_key, (samples, dimension))
    permuted = inputs[:, jax.random.permutation(permutation_key, dimension)]
    limit = np.asarray(jnp.kron(diagnostics.gated_linear_kernel(inputs), jnp.eye(outputs)))
    limit_permuted = np.asarray(jnp.kron(diagnostics.gated_linear_kernel(permuted), jnp.eye(outputs)))

    def relative(left, right):
        return float(np.linalg.norm(left - right) / np.linalg.norm(limit))

    print(f"closed form, permuted against plain: {relative(limit_permuted, limit):.1e}")
    to_limit, between = np.zeros((2, len(widths), seeds))
    for row, width in enumerate(widths):
        for seed in range(seeds):
            key = jax.random.fold_in(network_key, seed)
            plain, other = (network_kernel(x, width, outputs, key) for x in (inputs, permuted))
            to_limit[row, seed] = relative(plain, limit)
            between[row, seed] = relative(other, plain)
        means = to_limit[row].mean(), between[row].mean()
        print(f"width {width:>6}: to the closed form {means[0]:.3f}, between permutations {means[1]:.3f}")
    if out is not None:
        draw(out, widths, to_limit, between, plain, limit)
    return to_limit, between


def draw(out, widths, to_limit, between, widest, limit):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    widths = np.asarray(widths, float)
    for values, name, color in (
        (to_limit, "network to closed form", "#1f5a99"),
        (between, "permuted inputs to plain inputs", "#d9822b"),
    ):
        left.plot(widths, values.mean(axis=1), "o-", color=color, label=name)
        left.fill_between(widths, values.min(axis=1), values.max(axis=1), color=color, alpha=0.2)
    guide = to_limit[0].mean() * np.sqrt(widths[0] / widths)
    left.plot(widths, guide, "--", color="#444444", label=r"$\propto 1/\sqrt{\mathrm{width}}$")
    left.set(
        xscale="log",
        yscale="log",
        xlabel="width",
        ylabel="relative distance (Frobenius norm)",
        title="Distances shrink with the width (bands: all seeds)",
    )
    left.legend()
    low, high = limit.min(), limit.max()
    right.plot([low, high], [low, high], color="#444444", linewidth=1)
    right.plot(limit.ravel(), widest.ravel(), ".", color="#1f5a99", markersize=4)
    right.set(
        xlabel="entry of the closed form",
        ylabel=f"entry of a network's kernel, width {int(widths[-1])}",
        title="All entries of both kernels",
    )
    figure.savefig(out, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="kernel.png", help="where to save the figure")
    arguments = parser.parse_args()
    main(arguments.out, widths=(10, 30, 100, 300, 1000, 3000, 10000))
