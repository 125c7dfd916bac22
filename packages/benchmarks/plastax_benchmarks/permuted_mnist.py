"""`python -m plastax_benchmarks.permuted_mnist` is `plastax run permuted-mnist`."""

import sys

from .run_command import main


if __name__ == "__main__":
    main(["permuted-mnist", *sys.argv[1:]])
