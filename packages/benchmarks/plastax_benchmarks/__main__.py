"""`python -m plastax_benchmarks` is `plastax`."""

from .cli import main


main()
