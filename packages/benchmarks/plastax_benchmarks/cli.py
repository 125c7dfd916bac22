"""The command line. Heavy imports stand inside the commands, so that `plastax --help` answers at once."""

from pathlib import Path
from typing import Literal


def demo(out: Path = Path("runs/demo"), tasks: int = 40, seeds: int = 3) -> None:
    """Train four methods on permuted digits, without a download, and show who stays able to learn.

    Args:
        out: folder for `demo.png` and `summary.json`.
        tasks: number of tasks, at least 10.
        seeds: number of seeds, trained side by side.

    """
    from .demo import run_demo

    run_demo(out, tasks, seeds)


def bench(what: Literal["effective-rank", "interval"], repeats: int = 15) -> None:
    """Compare two programs in one run, and print ratios.

    Args:
        what: `effective-rank`: our closed form against autodiff through an SVD. `interval`: what an effective-rank step
            every so many steps costs in a vmapped training.
        repeats: rounds to take medians over.

    """
    if what == "effective-rank":
        from .speed.effective_rank import main as run
    else:
        from .speed.interval import main as run
    run(repeats)


def main() -> None:
    """The entry point."""
    try:
        import tyro
    except ImportError as error:
        raise SystemExit('the command line needs an extra: pip install "plastax[benchmarks]"') from error
    tyro.extras.subcommand_cli_from_dict(
        {"demo": demo, "bench": bench}, prog="plastax", description="Keep deep networks able to learn."
    )


if __name__ == "__main__":
    main()
