"""`python -m plastax_benchmarks.slowly_changing_regression` is `plastax run slowly-changing-regression`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "slowly-changing-regression", *sys.argv[1:]])
