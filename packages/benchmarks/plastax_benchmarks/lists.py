"""`plastax methods` and `plastax problems`: what there is to choose from."""

from rich.console import Console
from rich.table import Table

from .methods.catalog import METHODS
from .presets import PRESETS, settings_for
from .presets.tables import DEFAULTS, SWEEPS, notes
from .problems.catalog import PROBLEMS


def list_methods(problem: str = "permuted-mnist", preset: str = "laptop") -> None:
    """All methods, with their settings on a problem and where they come from.

    Args:
        problem: whose settings are shown.
        preset: laptop or paper.

    """
    table = Table(title=f"Methods; settings for {problem} at the {preset}'s scale", show_lines=True)
    for name in ("method", "what it does", "settings", "reference"):
        table.add_column(name)
    for name, method in METHODS.items():
        settings = settings_for(problem, preset, name)
        own = ("learning_rate", *method.settings)
        table.add_row(
            name, method.what, "\n".join(f"{each} {getattr(settings, each):g}" for each in own), method.reference
        )
    Console().print(table)
    if preset == "paper" and problem in SWEEPS:
        for name in SWEEPS[problem]:
            for setting, note in notes(problem, name).items():
                Console().print(f"{name}, {setting}: {note}", markup=False, highlight=False)
        for setting, note in notes(problem).items() if problem in DEFAULTS else ():
            Console().print(f"{setting}: {note}", markup=False, highlight=False)


def list_problems() -> None:
    """All problems, with the sizes of their presets."""
    table = Table(title="Problems", show_lines=True)
    for name in ("problem", "what it is", *PRESETS, "reference"):
        table.add_column(name)
    for name, problem in PROBLEMS.items():
        sizes = (_size(name, preset) for preset in PRESETS)
        table.add_row(name, problem.what, *sizes, problem.reference)
    table.add_row(
        "slippery-ant",
        "an ant that learns to run while the friction of the ground changes",
        "brax spring",
        "brax positional",
        "Dohare et al. 2024",
    )
    Console().print(table)


def _size(problem: str, preset: str) -> str:
    settings = settings_for(problem, preset, "bp")
    return f"{settings.num_tasks} tasks\n{settings.network}, {settings.dataset}\n{settings.seeds} seeds"
