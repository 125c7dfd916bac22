"""`plastax methods` and `plastax problems`: what there is to choose from."""

from rich.console import Console
from rich.table import Table

from .._errors import check_name, usage_errors
from ..config import PRESETS, settings_for
from ..config.paper_tables import DEFAULTS, SWEEPS, notes
from ..methods.catalog import METHODS
from ..problems.catalog import PROBLEMS
from ..rl.presets import PAPER_NOTES, PRESETS as ANT_PRESETS
from ._call import call
from .run import ANT


def methods(arguments: list[str]) -> None:
    """Calls `list_methods` with the values of its flags."""
    call(list_methods, "methods", arguments)


def problems(arguments: list[str]) -> None:
    """Calls `list_problems`."""
    call(list_problems, "problems", arguments)


def list_methods(problem: str = "permuted-mnist", preset: str = "laptop") -> None:
    """All methods, with their settings on a problem and where they come from.

    Args:
        problem: whose settings are shown.
        preset: laptop or paper.

    """
    with usage_errors():
        check_name("problem", problem, [*PROBLEMS, ANT])
        check_name("preset", preset, PRESETS)
    values = _ant_values(preset) if problem == ANT else _values(problem, preset)
    table = Table(title=f"Methods; settings for {problem}, preset {preset}", show_lines=True)
    # Names that have to be typed are never cut or broken, however narrow the terminal is.
    for name, typed in {"method": True, "what it does": False, "settings": True, "reference": False}.items():
        table.add_column(name, no_wrap=typed)
    for name, own in values.items():
        lines = [f"{setting} {value:g}" for setting, value in own.items()]
        table.add_row(name, METHODS[name].what, "\n".join(lines), METHODS[name].reference)
    _print(table)
    if preset == "paper":
        for about, note in (PAPER_NOTES if problem == ANT else _notes(problem)).items():
            _print(f"{about}: {note}")
    if problem != ANT:
        _print(f"{ANT} has methods and settings of its own: plastax methods --problem {ANT}")


def _values(problem: str, preset: str) -> dict[str, dict[str, float]]:
    """The settings of each method on a supervised problem."""
    found = {}
    for name, method in METHODS.items():
        settings = settings_for(problem, preset, name)
        found[name] = {each: getattr(settings, each) for each in ("learning_rate", *method.settings)}
    return found


def _ant_values(preset: str) -> dict[str, dict[str, float]]:
    """The settings of each method on the ant, under the ant's own names."""
    config, best = ANT_PRESETS[preset]
    return {method: {"lr": config.lr, **own} for method, own in best.items()}


def _notes(problem: str) -> dict[str, str]:
    """Notes on the paper's tables, for methods and for the problem's defaults."""
    found = {
        f"{method}, {setting}": note
        for method in (METHODS if problem in SWEEPS else ())
        for setting, note in notes(problem, method).items()
    }
    return found | (notes(problem) if problem in DEFAULTS else {})


def list_problems() -> None:
    """All problems, with the sizes of their presets."""
    table = Table(title="Problems", show_lines=True)
    # As in the other table. A column for references would leave too little for the rest of 80 characters.
    for name, typed in {"problem": True, "what it is": False, **dict.fromkeys(PRESETS, True)}.items():
        table.add_column(name, no_wrap=typed)
    for name, problem in PROBLEMS.items():
        sizes = (_size(name, preset) for preset in PRESETS)
        table.add_row(name, f"{problem.what} ({problem.reference})", *sizes)
    what = "an ant that learns to run while the friction of the ground changes (Dohare et al. 2024)"
    table.add_row(ANT, what, *(_ant_size(preset) for preset in PRESETS))
    _print(table)


def _size(problem: str, preset: str) -> str:
    settings = settings_for(problem, preset, "bp")
    return f"{settings.num_tasks} tasks\n{settings.network}\n{settings.dataset}\n{settings.seeds} seeds"


def _ant_size(preset: str) -> str:
    config = ANT_PRESETS[preset][0]
    return f"{config.total_steps:,} steps\nppo\nbrax {config.backend}\n{config.seeds} seeds"


def _print(content: Table | str) -> None:
    # Sentences are left to the terminal to wrap, so that a command in them stays whole.
    Console().print(content, markup=False, highlight=False, soft_wrap=isinstance(content, str))
