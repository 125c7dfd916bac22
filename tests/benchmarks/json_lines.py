"""Writes streams of a run folder by hand; `plastax_benchmarks.runs.read_stream` reads them."""

import json


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
