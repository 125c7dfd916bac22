"""`plastax methods` and `plastax problems`: lists of methods and problems."""

from rich.console import Console
from rich.table import Table

from .._errors import check_name, usage_errors
from .._settings import fields_of
from ..config import PRESETS, RunConfig, configure
from ..config.paper_tables import DEFAULTS, notes
from ..methods import METHODS, needed_by
from ..problems.catalog import PROBLEMS, SlipperyAntSettings
from ._call import call


def methods(arguments: list[str]) -> None:
    """Calls `list_methods` with the values of its flags."""
    call(list_methods, "methods", arguments)


def problems(arguments: list[str]) -> None:
    """Calls `list_problems`."""
    call(list_problems, "problems", arguments)


def list_methods(problem: str = "permuted-mnist", preset: str = "laptop") -> None:
    """List all methods, with their settings for a problem and their references.

    Args:
        problem: the problem whose settings are shown.
        preset: laptop or paper.

    """
    with usage_errors():
        check_name("problem", problem, PROBLEMS)
        check_name("preset", preset, PRESETS)
    table = Table(title=f"Methods; settings for {problem}, preset {preset}", show_lines=True)
    # Names that people have to type are never truncated or wrapped, even on a narrow terminal.
    for name, typed in {"method": True, "what it does": False, "settings": True, "reference": False}.items():
        table.add_column(name, no_wrap=typed)
    for name, method in METHODS.items():
        try:
            config = configure(problem, preset, name, **needed_by(name))
        except ValueError:  # The problem's network has no units that can be replaced.
            table.add_row(name, method.words, "(not on this problem)", method.reference)
            continue
        own = {setting: config.settings[setting] for setting in ("learning_rate", *fields_of(method))}
        lines = [f"{setting} {value:g}" for setting, value in own.items() if value is not None]
        if config.optimizer.name != configure(problem, preset, "bp").optimizer.name:
            lines.append(f"--optimizer {config.optimizer.name}")
        table.add_row(name, method.words, "\n".join(lines), method.reference)
    _print(table)
    if preset == "paper" and problem in DEFAULTS:
        for about, note in _notes(problem).items():
            _print(f"{about}: {note}")


def _notes(problem: str) -> dict[str, str]:
    """Notes on the paper's tables, for methods and for the problem's defaults."""
    found = {f"{method}, {setting}": note for method in METHODS for setting, note in notes(problem, method).items()}
    return found | notes(problem)


def list_problems() -> None:
    """List all problems, with the sizes of their presets."""
    table = Table(title="Problems", show_lines=True)
    # As in the other table. A column for references would leave too little for the rest of 80 characters.
    for name, typed in {"problem": True, "what it is": False, **dict.fromkeys(PRESETS, True)}.items():
        table.add_column(name, no_wrap=typed)
    for name, problem in PROBLEMS.items():
        sizes = (_size(configure(name, preset, "bp")) for preset in PRESETS)
        table.add_row(name, f"{problem.words} ({problem.reference})", *sizes)
    _print(table)


def _size(config: RunConfig) -> str:
    values = config.settings
    if isinstance(config.problem, SlipperyAntSettings):
        first = f"{config.problem.total_steps:,} steps\n{config.network.name}\nbrax {config.problem.backend}"
    else:
        data = values.get("dataset") or values.get("text", "no data")
        first = f"{values['num_tasks']} tasks\n{config.network.name}\n{data}"
    return f"{first}\n{config.seeds} seeds"


def _print(content: Table | str) -> None:
    # The terminal wraps sentences, so that a command in them can be copied.
    Console().print(content, markup=False, highlight=False, soft_wrap=isinstance(content, str))
