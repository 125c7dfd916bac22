"""`python -m plastax_benchmarks.continual_imagenet` is `plastax run continual-imagenet`."""

import sys

from .run_command import main


if __name__ == "__main__":
    main(["continual-imagenet", *sys.argv[1:]])
