"""`python -m plastax_benchmarks.random_label_mnist` is `plastax run random-label-mnist`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "random-label-mnist", *sys.argv[1:]])
