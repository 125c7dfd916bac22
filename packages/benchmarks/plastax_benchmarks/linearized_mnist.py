"""`python -m plastax_benchmarks.linearized_mnist` is `plastax run linearized-mnist`."""

import sys

from .run_command import main


if __name__ == "__main__":
    main(["linearized-mnist", *sys.argv[1:]])
