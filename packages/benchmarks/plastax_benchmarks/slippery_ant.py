"""`python -m plastax_benchmarks.slippery_ant` is `plastax run slippery-ant`."""

import sys

from .run_command import main


if __name__ == "__main__":
    main(["slippery-ant", *sys.argv[1:]])
