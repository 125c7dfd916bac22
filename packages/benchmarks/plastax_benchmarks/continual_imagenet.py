"""`python -m plastax_benchmarks.continual_imagenet` is `plastax run continual-imagenet`."""

import sys

from .cli import main


if __name__ == "__main__":
    main(["run", "continual-imagenet", *sys.argv[1:]])
