"""The folder of a sweep: `sweep.json` lists its jobs, each of which has a run folder of its own.

What has been done is only recorded in the run folders, so a sweep can be killed at any moment.
"""

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .._errors import UsageError
from ..config import RunConfig
from ..loggers.catalog import LogTo
from ..runs import RunError, take_lock, write_atomic
from ..training.members import Member, Sweep, members_of


CONTENT, OUTCOME = "sweep.json", "outcome.json"
_LEFTOVERS = (f".tmp-{CONTENT}", ".seen-")


@dataclass(frozen=True)
class Job:
    """Configurations of one method that share a compiled program and a run folder.

    - `name`: of the run folder.
    - `combinations`: the values of the swept settings, one dictionary for each configuration.
    - `seed`, `seeds`: the first seed, and the number of seeds of each configuration.
    - `seconds`, `bytes`: the estimates of the plan, if there was a calibration.
    """

    name: str
    method: str
    combinations: tuple[dict[str, Any], ...]
    seed: int
    seeds: int
    seconds: float | None = None
    bytes: float | None = None

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.combinations) * self.seeds

    def halves(self) -> "list[Job]":
        """Two jobs with half of the members each; names are chosen by the folder."""
        if len(self.combinations) > 1:
            middle = len(self.combinations) // 2
            parts = (self.combinations[:middle], self.combinations[middle:])
            return [self._share(replace(self, combinations=part)) for part in parts]
        first = self.seeds // 2
        halves = replace(self, seeds=first), replace(self, seed=self.seed + first, seeds=self.seeds - first)
        return [self._share(half) for half in halves]

    def _share(self, part: "Job") -> "Job":
        """A part of this job, with its share of the estimated time. Its memory is not known: the estimate was wrong."""
        seconds = None if self.seconds is None else self.seconds * part.size / self.size
        return replace(part, seconds=seconds, bytes=None)


@dataclass(frozen=True)
class Outcome:
    """How a job has ended, if not with all its tasks.

    - `kind`: `"diverged"` (all members), `"memory"`, `"killed"`, `"error"` (a bug), or `"stopped"` (a mistake of the
        user or a full disk, which would stop other jobs, too).
    - `failed`: the reason, in words.
    """

    kind: str
    failed: str


class SweepFolder:
    """A sweep on the disk."""

    def __init__(self, path: Path, bases: dict[str, dict[str, Any]], jobs: Sequence[Job]):
        self.path, self.bases, self.jobs = path, bases, list(jobs)

    def config(self, job: Job, data_dir: Path | None = None, log: LogTo = "none") -> RunConfig:
        """The configuration of a job, with its seeds and its folder."""
        values = self.bases[job.method] | {"seed": job.seed, "seeds": job.seeds}
        return RunConfig.from_json(values, out=self.path / job.name, data_dir=data_dir, log=log)

    def members(self) -> set[tuple[str, int, str]]:
        """All members that some job has, each as method, seed, and values."""
        return {
            (job.method, seed, key_of(values))
            for job in self.jobs
            for values in job.combinations
            for seed in range(job.seed, job.seed + job.seeds)
        }

    def add(self, jobs: Sequence[Job]) -> list[Job]:
        """Adds jobs, and names them after their method: `l2-1`, `l2-2`, ..."""
        added = []
        for job in jobs:
            taken = {other.name for other in self.jobs} | {path.name for path in self.path.glob(f"{job.method}-*")}
            number = next(n for n in range(1, len(taken) + 2) if f"{job.method}-{n}" not in taken)
            added.append(replace(job, name=f"{job.method}-{number}"))
            self.jobs.append(added[-1])
        return added

    def remove(self, job: Job) -> None:
        """Removes a job from the list."""
        self.jobs = [other for other in self.jobs if other.name != job.name]

    def write(self) -> None:
        """Writes the list of jobs, atomically."""
        content = {"methods": self.bases, "jobs": [asdict(job) for job in self.jobs]}
        write_atomic(self.path / CONTENT, (json.dumps(content, indent=1) + "\n").encode())

    def outcome(self, job: Job) -> Outcome | None:
        """The recorded failure of a job, if there is one."""
        return read_outcome(self.path / job.name)

    def forget(self, job: Job) -> None:
        """Removes the recorded failure of a job, which is then tried again."""
        (self.path / job.name / OUTCOME).unlink(missing_ok=True)


def key_of(values: Mapping[str, Any]) -> str:
    """The values of a combination as text, independent of their order."""
    return json.dumps(values, sort_keys=True)


def read_outcome(folder: Path) -> Outcome | None:
    """The recorded failure in a run folder, if there is one."""
    try:
        content = json.loads((folder / OUTCOME).read_bytes())
        return Outcome(str(content["kind"]), str(content["failed"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Outcome("error", f"{folder / OUTCOME} cannot be read")


def is_sweep(path: Path) -> bool:
    """Whether a folder contains a sweep."""
    return (path / CONTENT).exists()


def read_sweep_folder(path: Path) -> SweepFolder:
    """Reads the list of jobs."""
    file = path / CONTENT
    try:
        content = json.loads(file.read_bytes())
        jobs = [Job(**{**each, "combinations": tuple(each["combinations"])}) for each in content["jobs"]]
        return SweepFolder(path, dict(content["methods"]), jobs)
    except FileNotFoundError as error:
        raise UsageError(f"{path} is not a sweep: it has no {CONTENT}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({error}): restore it from a backup, or use another --out") from error


def planned_seeds(path: Path) -> set[int]:
    """The seeds of all jobs of a sweep, also of those that have not started."""
    return {seed for job in read_sweep_folder(path).jobs for seed in range(job.seed, job.seed + job.seeds)}


@contextlib.contextmanager
def open_sweep(path: Path, configs: Mapping[str, RunConfig]) -> Iterator[SweepFolder]:
    """Opens and locks the folder of a sweep, a new one or one to continue.

    **Arguments:**

    - `path`: the folder, which is created if it does not exist.
    - `configs`: the configuration of each method, without a sweep. Methods may be added to an existing sweep; those
        that it has must have the same settings, except for seeds.
    """
    new = {method: base_of(config) for method, config in configs.items()}
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A calibration that failed may have left logs, and a kill may have left temporary files.
        names = (file.name for file in path.iterdir())
        others = sorted(name for name in names if name not in ("lock", "logs") and not name.startswith(_LEFTOVERS))
    except (FileExistsError, NotADirectoryError) as error:
        raise RunError(f"{path} is a file, or is inside a file: choose another folder (--out)") from error
    except OSError as error:
        raise RunError(f"{path} cannot be used ({error.strerror}): choose another folder (--out)") from error
    if others and not is_sweep(path):
        raise RunError(
            f"{path} contains something else ({', '.join(others[:3])}) and not a sweep: choose an empty or a new "
            "folder (--out)"
        )
    lock = take_lock(path)
    try:
        folder = read_sweep_folder(path) if is_sweep(path) else SweepFolder(path, {}, [])
        _check_bases(folder, new)
        folder.bases |= new
        yield folder
    finally:
        if not is_sweep(path):  # Something was wrong before the first job: nothing is left behind.
            (path / "lock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.rmdir()
        os.close(lock)


@contextlib.contextmanager
def peek_sweep(path: Path, configs: Mapping[str, RunConfig]) -> Iterator[SweepFolder]:
    """The same without a lock, and without creating anything, to make a plan."""
    folder = read_sweep_folder(path) if is_sweep(path) else SweepFolder(path, {}, [])
    new = {method: base_of(config) for method, config in configs.items()}
    _check_bases(folder, new)
    folder.bases |= new
    yield folder


def base_of(config: RunConfig) -> dict[str, Any]:
    """The settings of a method in a sweep: all but the seeds, which may be added to."""
    values = {name: value for name, value in config.as_json().items() if name not in ("seed", "seeds")}
    return json.loads(json.dumps(values))


def _check_bases(folder: SweepFolder, new: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses another sweep: another problem or preset, or other settings of a method."""
    shared = ("problem", "preset")
    old = dict(folder.bases)
    known = {method for method, base in old.items() if set(shared) <= set(base)}
    lost = sorted({*old, *(job.method for job in folder.jobs)} - known)
    if lost:
        raise RunError(
            f"{folder.path / CONTENT} lacks the settings of {', '.join(lost)}: restore it from a backup, or use "
            "another --out"
        )
    wrong = [
        f"  {name}: {next(iter(old.values()))[name]!r} in the folder, {next(iter(new.values()))[name]!r} now"
        for name in shared
        if old and next(iter(old.values()))[name] != next(iter(new.values()))[name]
    ]
    for method in new if not wrong else ():
        before, now = old.get(method, new[method]), new[method]
        wrong += [
            f"  {method}, {name}: {before.get(name)!r} in the folder, {now.get(name)!r} now"
            for name in [*before, *(name for name in now if name not in before)]
            if before.get(name) != now.get(name)
        ]
    if wrong:
        raise RunError(
            f"{folder.path} contains another sweep:\n"
            + "\n".join(wrong)
            + "\nChoose another folder (--out), or the same settings to continue that sweep. Methods, values and "
            "seeds can be added."
        )


def missing_members(
    folder: SweepFolder, configs: Mapping[str, RunConfig], grids: Mapping[str, Sweep]
) -> dict[str, list[Member]]:
    """For each method, the members of its grid that no job of the folder has yet."""
    have: Collection[tuple[str, int, str]] = folder.members()
    return {
        method: [
            member
            for member in members_of(config, grids[method])
            if (method, member.seed, key_of(member.values)) not in have
        ]
        for method, config in configs.items()
    }
