"""Runs benchmarks from the command line."""

import sys

from plastax_benchmarks import cli


def bench(monkeypatch, capsys, *arguments):
    """What a benchmark prints."""
    monkeypatch.setattr(sys, "argv", ["plastax", "bench", *arguments])
    cli.main()
    return capsys.readouterr().out
