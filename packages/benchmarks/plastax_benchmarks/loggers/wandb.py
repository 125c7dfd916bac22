"""Weights & Biases: a run for each member, all in one group."""

import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .base import Logger, Point


PROJECT = "plastax"
"""The project, unless the user's settings name one."""

FINISH_SECONDS = 60.0
"""How long the end of a run waits for uploads. What was not uploaded is on disk, for `wandb sync`."""


class WeightsAndBiases(Logger):
    """Runs named after their members, with the settings of each. Files are in `wandb/` in the run folder."""

    title: ClassVar = "Weights & Biases"
    package: ClassVar = "wandb"

    def __init__(self, folder: Path, config: Mapping[str, Any], members: Mapping[str, Mapping[str, Any]]):
        import wandb

        settings = wandb.setup().settings
        offline = settings.mode in ("offline", "dryrun")
        group = settings.run_group or "/".join(folder.absolute().parts[-2:])
        shared = {name: value for name, value in config.items() if name not in ("sweep", "seeds")}
        self._runs, self._first, self._pending = {}, {}, {member: {} for member in members}
        for place, (member, name) in enumerate(_ids(folder, members).items()):
            if offline:  # All points are logged again.
                for old in (folder / "wandb").glob(f"offline-run-*-{name}"):
                    shutil.rmtree(old)
            run = wandb.init(
                project=settings.project or PROJECT,
                dir=str(folder),
                id=name,
                name=member,
                group=group,
                job_type=config.get("method"),
                config={**shared, **members[member]},
                resume=None if offline else "allow",
                reinit="create_new",
                # The output belongs to all members. Only the first one prints links, and may ask for a login.
                settings=wandb.Settings(
                    console="off",
                    quiet=True,
                    silent=place > 0,
                    finish_timeout=FINISH_SECONDS,
                    finish_timeout_raises=True,
                ),
            )
            self._runs[member], self._first[member] = run, run.step
        where = f"`wandb sync {folder / 'wandb'}/offline-run-*` uploads it" if offline else "one run for each seed"
        self.words = f"Weights & Biases: group {group}, {where}"

    def log(self, points: Sequence[Point]) -> None:
        """Logs one line for each task or window, together with its diagnostics."""
        for point in points:
            self._pending[point.member] |= point.values
            if not point.last:
                continue
            values, self._pending[point.member] = self._pending[point.member], {}
            # A resumed run knows its next step. The server has all earlier ones.
            if point.number >= self._first[point.member]:
                line = {point.unit: point.number, **values}
                self._runs[point.member].log(line, step=point.number, commit=True)

    def close(self, *, failed: bool) -> None:
        """Ends the runs, and waits for uploads."""
        for run in self._runs.values():
            run.finish(exit_code=int(failed))

    def abandon(self) -> None:
        """Leaves the rest to wandb, which ends its runs when Python exits."""


def _ids(folder: Path, members: Mapping[str, Any]) -> dict[str, str]:
    """The id of each member, the same when a run is resumed, so that its points are not in two runs."""
    from ..runs import write_atomic

    file = folder / "wandb" / "ids.json"
    known = json.loads(file.read_bytes()) if file.exists() else {}
    ids = {member: known.get(member) or secrets.token_hex(4) for member in members}
    if ids != known:
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, (json.dumps(ids, indent=1) + "\n").encode())
    return ids
