"""`python -m plastax_benchmarks.incremental_cifar` is `plastax run incremental-cifar`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "incremental-cifar", *sys.argv[1:]])
