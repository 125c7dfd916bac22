"""The command line. Heavy imports stand inside the commands, so that `plastax --help` answers at once."""

import importlib
import sys
from pathlib import Path


BENCHES = {
    "effective-rank": "our closed form against autodiff through an SVD",
    "interval": "what an effective-rank step every so many steps costs in a vmapped training",
    "sketch": "bounds of the effective rank from sketches, beside the truth",
    "kernels": "Triton and XLA paths of the hot operations",
    "lanczos": "our Lanczos against matfree and an eager loop",
    "coverage": "how often error bars of the epsilon-rank cover the truth",
    "resnet-hvp": "memory of Hessian-vector products of a ResNet-18",
}


def demo(out: Path = Path("runs/demo"), tasks: int = 40, seeds: int = 3) -> None:
    """Train four methods on permuted digits, without a download, and show who stays able to learn.

    Args:
        out: folder for `demo.png` and `summary.json`.
        tasks: number of tasks, at least 10.
        seeds: number of seeds, trained side by side.

    """
    from .demo import run_demo

    run_demo(out, tasks, seeds)


def bench(arguments: list[str]) -> None:
    """Compare two programs in one run, and print ratios."""
    name = arguments[0] if arguments else "--help"
    if name not in BENCHES:
        lines = [f"  {known:16} {what}" for known, what in BENCHES.items()]
        print("\n".join(["usage: plastax bench NAME [--help] [options of that benchmark]", "", *lines]))
        if name not in ("-h", "--help"):
            raise SystemExit(f"\nthere is no benchmark {name!r}: choose one of these")
        return
    importlib.import_module(f".speed.{name.replace('-', '_')}", __package__).main(arguments[1:])


def main() -> None:
    """The entry point."""
    try:
        import tyro
    except ImportError as error:
        raise SystemExit('the command line needs an extra: pip install "plastax[benchmarks]"') from error
    if sys.argv[1:2] == ["bench"]:
        return bench(sys.argv[2:])

    def bench_for_help() -> None:
        """Compare two programs in one run, and print ratios: `plastax bench` lists them."""

    tyro.extras.subcommand_cli_from_dict(
        {"demo": demo, "bench": bench_for_help}, prog="plastax", description="Keep deep networks able to learn."
    )


if __name__ == "__main__":
    main()
