"""Whether measurements at the start of a task predict how well a network learns it: `plastax bench diagnosis`.

Networks of several kinds learn one task after another with several methods. At the starts of many tasks, everything
that might predict what follows is measured. Then the network is trained on the task, and so are a few new networks of
the same kind. The folder gets `points.csv` with a row for each network and task, written as the run goes. Repeat the
command to resume it.
"""

from pathlib import Path

from plastax_kernels import set_lapack_threads

from ..training.host import keep_compiled_programs
from ._diagnosis.collect import Table, collect, drop_incomplete_line
from ._diagnosis.settings import SETTINGS
from .parser import bench_parser
from .timing import Tell


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = bench_parser("diagnosis", __doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis"), help="folder of the results")
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets, for networks on images")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each method")
    parser.add_argument("--quick", action="store_true", help="a few small tasks, to try the command")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in SETTINGS], help="some of the settings")
    options = parser.parse_args(arguments)
    set_lapack_threads(1)
    keep_compiled_programs()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "points.csv"
    drop_incomplete_line(path)
    chosen = [
        each
        for each in SETTINGS
        if (options.only is None or each.name in options.only)
        and (options.data_dir is not None or not each.needs_images)
    ]
    collect(
        chosen, Table(path), seeds=options.seeds, data_dir=options.data_dir, quick=options.quick, tell=Tell(10.0)
    )
