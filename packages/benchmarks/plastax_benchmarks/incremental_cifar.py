"""`python -m plastax_benchmarks.incremental_cifar` is `plastax run incremental-cifar`."""

import sys

from .run_command import main


if __name__ == "__main__":
    main(["incremental-cifar", *sys.argv[1:]])
