"""The kernel of a gated linear network converges to a closed form that is invariant to permutations of the inputs.

For each width, the tangent kernel of a linearized ReLU network is computed on a few inputs and on the same inputs with
their coordinates permuted, and both are compared with the infinite-width kernel. The distances fall like one over the
square root of the width: at infinite width, all permuted tasks have the same kernel. `plastax reproduce
kernel-permutation` draws the same figure.

    python examples/kernel_permutation.py --out kernel.png
"""

import argparse
from pathlib import Path

from plastax_benchmarks.report.style import save_png
from plastax_benchmarks.reproduce.kernel_permutation import kernel_distances, kernel_figure


def main(out=None, *, widths=(10, 100, 1000), seeds=3):
    found = kernel_distances(widths, seeds)
    print(f"closed form, permuted against plain: {found.of_limit:.1e}")
    for width, to_limit, between in zip(widths, found.to_limit, found.between, strict=True):
        print(f"width {width:>6}: to the closed form {to_limit.mean():.3f}, between permutations {between.mean():.3f}")
    if out is not None:
        save_png(kernel_figure(found), Path(out), dpi=130)
    return found.to_limit, found.between


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="kernel.png", help="where to save the figure")
    arguments = parser.parse_args()
    main(arguments.out, widths=(10, 30, 100, 300, 1000, 3000, 10000))
