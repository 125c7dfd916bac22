"""Grids: for each method, the values to try, from a name, a file, or the command line."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._errors import UsageError, check_name
from ..config import RunConfig
from ..config.laptop_grids import laptop_grid, strength_grid
from ..config.networks import NETWORKS
from ..config.paper_tables import SWEEPS
from ..methods import METHODS
from ..problems.catalog import PROBLEMS
from ..training.members import Sweep, members_of, read_sweep, sweepable


Grid = dict[str, tuple[Any, ...]]
"""Values to try for some settings of one method."""

NAMES = ("paper", "laptop", "strengths")


def methods_by_default(problem: str, texts: Sequence[str]) -> list[str]:
    """The methods of a sweep that names none: those of the file, or those that the paper compares on the problem."""
    if len(texts) == 1 and "=" not in texts[0] and texts[0] not in NAMES:
        return list(_read_file(Path(texts[0])))
    network = NETWORKS[PROBLEMS[problem].networks[0]]
    methods = SWEEPS.get(problem, SWEEPS["permuted-mnist"])
    return [name for name in methods if network.has_resettable_units or not METHODS[name].replaces_units]


def read_grids(configs: Mapping[str, RunConfig], texts: Sequence[str]) -> dict[str, Sweep]:
    """The grid of each method.

    **Arguments:**

    - `configs`: the configuration of each method, without a sweep.
    - `texts`: what was given as `--grid`: `paper`, `laptop`, `strengths` or a file; or several of `setting=a,b`, which
        are tried with all methods that have the setting.
    """
    if not texts:
        texts = ["laptop"]
    grids: Mapping[str, Sweep]
    if any("=" in text for text in texts):
        grids = _from_texts(configs, texts)
    elif len(texts) > 1:
        raise UsageError(f"--grid takes one name or file, or several of setting=a,b; got {' '.join(texts)}")
    elif texts[0] == "paper":
        grids = {method: _of_paper(config.problem.name, method) for method, config in configs.items()}
    elif texts[0] == "laptop":
        grids = {method: laptop_grid(config.problem.name, method) for method, config in configs.items()}
    elif texts[0] == "strengths":
        grids = {method: strength_grid(config.problem.name, method) for method, config in configs.items()}
    else:
        grids = _from_file(configs, Path(texts[0]))
    for method, config in configs.items():
        members_of(config, grids[method])  # Refuses values that do not fit.
    return dict(grids)


def _of_paper(problem: str, method: str) -> Grid:
    if problem not in SWEEPS:
        raise UsageError(f"the paper has no sweeps of {problem}, only of {', '.join(SWEEPS)}: use --grid laptop")
    if method not in SWEEPS[problem]:
        raise UsageError(
            f"the paper has no sweep of {method} on {problem}: leave it out of --methods (the paper has "
            f"{', '.join(SWEEPS[problem])}), or use --grid laptop"
        )
    # The ant's table lists a learning rate twice.
    return {name: tuple(dict.fromkeys(sweep.values)) for name, sweep in SWEEPS[problem][method].items()}


def _from_texts(configs: Mapping[str, RunConfig], texts: Sequence[str]) -> dict[str, Grid]:
    grids: dict[str, Grid] = {method: {} for method in configs}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if not values:
            raise UsageError(
                f"--grid takes a name, a file, or a setting and values, as in weight-decay=1e-4,1e-3; got {text!r}"
            )
        if any(name in grid for grid in grids.values()):
            raise UsageError(f"--grid {name.replace('_', '-')} is given twice: list all values in one")
        having = {method: config for method, config in configs.items() if name in sweepable(config)}
        if not having:
            read_sweep(next(iter(configs.values())), name, values)  # Raises, and names what can be swept.
        for method, config in having.items():
            grids[method][name] = read_sweep(config, name, values)
    return grids


def _from_file(configs: Mapping[str, RunConfig], path: Path) -> dict[str, Grid]:
    content = _read_file(path)
    missing = [method for method in configs if method not in content]
    if missing:
        raise UsageError(f"{path} has no grid for {', '.join(missing)}: it has {', '.join(content)}")
    grids: dict[str, Grid] = {}
    for method, config in configs.items():
        grids[method] = {}
        for name, values in content[method].items():
            name = name.replace("-", "_")
            values = values if isinstance(values, list) else [values]
            # As text, so that they get the type of the setting, as on the command line.
            grids[method][name] = read_sweep(config, name, ",".join(map(str, values)))
    return grids


def _read_file(path: Path) -> dict[str, dict[str, Any]]:
    """The content of a grid file: for each method, an object from settings to lists of values."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(
            f"--grid {path} is neither {', '.join(NAMES)} nor setting=a,b, and cannot be read as a file "
            f"({error.strerror})"
        ) from error
    try:
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is not valid {'TOML' if path.suffix == '.toml' else 'JSON'}: {error}") from error
    shape = 'it must have the form {"l2": {"weight_decay": [0.001, 0.01]}}'
    if not isinstance(content, dict) or not content:
        raise UsageError(f"{path} contains no grids: {shape}")
    for method, grid in content.items():
        check_name("method", method, METHODS)
        if not isinstance(grid, dict):
            raise UsageError(f"{path} has {grid!r} as the grid of {method}: {shape}")
    return content
