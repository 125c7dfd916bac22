"""Whether measurements at the start of a task predict how well a network learns it: `plastax bench diagnosis`.

Networks of several kinds learn one task after another with several methods. At the starts of many tasks, everything
that might predict what follows is measured. Then the network is trained on the task, and so are new networks of the
same kind. Half of the settings were used to choose the score, the others to test it.

The folder gets `points.csv`, with a row for each network and task that is written as the run goes, `metadata.json` with
the meaning of its columns, `analysis.json` and `figure.png`. Repeat the command to resume it. Without --data-dir, the
network on images is left out.
"""

import json
from pathlib import Path

from plastax_kernels import set_lapack_threads

from ..runs import versions, write_atomic
from ..training.host import keep_compiled_programs
from ._diagnosis import results
from ._diagnosis.collect import Table, collect, drop_incomplete_line
from ._diagnosis.columns import COLUMNS
from ._diagnosis.figure import draw
from ._diagnosis.points import points_of
from ._diagnosis.settings import FRESH, METHODS, SETTINGS, Setting
from .output import table
from .parser import bench_parser
from .timing import ProgressLog


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = bench_parser("diagnosis", __doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis"), help="folder of the results")
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets, for networks on images")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each method")
    parser.add_argument("--quick", action="store_true", help="a few small tasks, to try the command")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in SETTINGS], help="some of the settings")
    parser.add_argument("--analyze", action="store_true", help="only analyze the rows that are there")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "points.csv"
    drop_incomplete_line(path)
    rows = Table(path)
    if not options.analyze:
        set_lapack_threads(1)
        keep_compiled_programs()
        chosen = [
            each
            for each in SETTINGS
            if (options.only is None or each.name in options.only)
            and (options.data_dir is not None or not each.needs_images)
        ]
        write_metadata(options.out / "metadata.json", chosen, options.data_dir, quick=options.quick)
        collect(
            chosen, rows, seeds=options.seeds, data_dir=options.data_dir, quick=options.quick, log=ProgressLog(10.0)
        )
    if not rows.rows:
        raise SystemExit(f"there are no rows in {path}: run without --analyze first")
    found = results.analyze(rows.rows)
    write_atomic(options.out / "analysis.json", (json.dumps(results.as_json(found), indent=1) + "\n").encode())
    draw(points_of(rows.rows), found["directions"], options.out / "figure.png")
    if options.json:
        print(json.dumps(results.as_json(found), indent=1))
        return
    for half in (*results.HALVES, results.BOTH):
        if half in found:
            own = found[half]
            words = half if half == results.BOTH else f"{half} half"
            print(f"{words}: {own['points']} networks at the start of a task, {own['impaired']} end impaired")
            print(table(results.table_rows(found, half)), end="\n\n")
    print(table(results.claim_rows(found)))
    print(f"Rows: {path}   Analysis: {options.out / 'analysis.json'}   Figure: {options.out / 'figure.png'}")


def write_metadata(path: Path, settings: list[Setting], data_dir: Path | None, *, quick: bool) -> None:
    """Writes what the rows mean, and the versions and configurations behind them."""
    configs = {
        each.name: {
            method: each.config(method, 1, data_dir, quick=quick).as_json() | {"budget_rate": each.rate}
            for method in METHODS
        }
        for each in settings
    }
    content = {"columns": COLUMNS, "new networks": FRESH, "versions": versions(), "configurations": configs}
    write_atomic(path, (json.dumps(content, indent=1) + "\n").encode())
