"""The options of a benchmark."""

import argparse


def bench_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for `plastax bench NAME`, with the benchmark's docstring as its help, and the option `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"plastax bench {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser
