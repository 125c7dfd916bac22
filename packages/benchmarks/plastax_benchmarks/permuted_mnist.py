"""`python -m plastax_benchmarks.permuted_mnist` is `plastax run permuted-mnist`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "permuted-mnist", *sys.argv[1:]])
