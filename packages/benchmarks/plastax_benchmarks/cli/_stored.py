"""`plastax run --config`: the exact settings of another run, with flags on top."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._errors import UsageError, did_you_mean
from ..config import RunConfig
from ..config.run import PLACES, without_effect
from ..config.stored import upgrade
from ..training.members import combinations_of
from ._flags import given_settings, value_of


class StoredRun(NamedTuple):
    """The settings of another run, and the combinations of its sweep; none if it has no sweep."""

    path: Path
    config: RunConfig
    sweep: list[dict[str, Any]]


def stored_run(arguments: Sequence[str]) -> StoredRun | None:
    """The run that `--config` names; `None` without that flag."""
    name = value_of("--config", arguments, "")
    return read_stored(Path(name)) if name else None


def read_stored(path: Path) -> StoredRun:
    """Reads a `config.json`, or that of a run folder, also from an earlier version."""
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(f"--config {path} is a folder without a config.json: name a run folder or a file")
        path /= "config.json"
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UsageError(f"--config: file not found: {path}") from error
    except OSError as error:
        raise UsageError(f"--config: {path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"--config: {path} is not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise UsageError(f"--config: {path} must contain an object, but contains a {type(values).__name__}")
    values = {name: value for name, value in values.items() if name not in PLACES}
    sweep = _sweep(path, values.pop("sweep", None) or [])
    try:
        config = RunConfig.from_json(values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--config: {path} is not the configuration of a run: {error}") from error
    # Earlier versions stored settings of other methods and networks. Only names that never existed are refused.
    known = {*config.as_json(), *without_effect(config)}
    for name in upgrade(values):
        if name not in known:
            raise UsageError(f"--config: {path} has an unknown setting {name!r}. {did_you_mean(name, known)}".rstrip())
    return StoredRun(path, config, sweep)


def check_arguments(stored: StoredRun, problem: str, arguments: Sequence[str]) -> None:
    """Refuses names that differ from those of the file, and values of settings that the file sweeps."""
    have = stored.config.as_json()
    given = {
        part: value_of(f"--{part}", arguments, have[part]) for part in ("preset", "method", "network", "optimizer")
    }
    for part, name in {"problem": problem, **given}.items():
        if name != have[part]:
            raise UsageError(
                f"--config {stored.path} has the {part} {have[part]}, not {name}. Its other settings were chosen for "
                f"that {part}: leave out --config, and start from the names"
            )
    swept = [] if value_of("--sweep", arguments, "") else [name for each in stored.sweep[:1] for name in each]
    for flag, name in given_settings(arguments):
        if name in swept:
            raise UsageError(
                f"{flag} has no effect, since {stored.path} sweeps that setting: give other values with "
                f"--sweep {flag.removeprefix('--')}=..."
            )


def _sweep(path: Path, stored: Any) -> list[dict[str, Any]]:
    """The combinations of a stored sweep. Earlier versions stored the values of each setting."""
    by_name = isinstance(stored, Mapping) and all(isinstance(values, list) for values in stored.values())
    listed = isinstance(stored, list) and all(isinstance(each, dict) for each in stored)
    if not by_name and not listed:
        raise UsageError(f'--config: "sweep" in {path} must be a list of combinations, got {stored!r}')
    return combinations_of(stored) if stored else []
