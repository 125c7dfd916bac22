"""`python -m plastax_benchmarks.slippery_ant` is `plastax run slippery-ant`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "slippery-ant", *sys.argv[1:]])
