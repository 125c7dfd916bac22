"""`python -m plastax_benchmarks.linearized_mnist` is `plastax run linearized-mnist`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "linearized-mnist", *sys.argv[1:]])
