"""What a sweep prints before and after it runs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from .folder import Job, SweepFolder
from .plan import Speed
from .start import Result
from .state import state_of


def plan_rows(jobs: Sequence[Job], speeds: Mapping[str, Speed]) -> Iterator[tuple[str, ...]]:
    """A table of the jobs to add: a row for each method, after a header."""
    yield "method", "runs", "jobs", "runs per job", "together", "time", "memory"
    for method in dict.fromkeys(job.method for job in jobs):
        own = [job for job in jobs if job.method == method]
        sizes = sorted({job.size for job in own})
        several = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        seconds = [job.seconds for job in own if job.seconds is not None]
        memory = [job.bytes for job in own if job.bytes is not None]
        yield (
            method,
            str(sum(job.size for job in own)),
            str(len(own)),
            several,
            _speedup(speeds.get(method), sizes[-1]),
            in_time(sum(seconds)) if seconds else "?",
            f"{max(memory) / 2**30:.1f} GiB" if memory else "?",
        )


def _speedup(speed: Speed | None, members: int) -> str:
    """How much faster a job trains its members than one at a time."""
    if speed is None or members == 1:
        return "-" if speed is not None else "?"
    return f"{members * speed.at(1).task_seconds / speed.at(members).task_seconds:.2f}x"


def plan_words(folder: SweepFolder, jobs: Sequence[Job], at_once: int) -> str:
    """Sentences about the plan: what it will take, and what was there before."""
    new = {job.name for job in jobs}
    states = {job.name: state_of(folder, job) for job in folder.jobs if job.name not in new}
    old = [job for job in folder.jobs if job.name in states]
    over = sum(job.size for job in old if states[job.name].over)
    left = sum(job.size for job in old if not states[job.name].over)
    words = []
    if jobs:
        runs = sum(job.size for job in jobs)
        words.append(f"{_count(runs, 'run')} (a configuration with a seed) in {_count(len(jobs), 'job')}.")
        seconds = [job.seconds for job in jobs if job.seconds is not None]
        if seconds:
            whole = max(sum(seconds) / at_once, *seconds) if len(seconds) > 1 else seconds[0]
            several = f", {at_once} at once" if at_once > 1 else ", one after the other"
            words.append(f"About {in_time(whole)}{several}.")
            words.append('"together" is the measured speed of a job against one run at a time.')
    if old:
        words.append(f"{over} runs are done, {left} are resumed or tried again.")
    return " ".join(words) if words else "Nothing to do."


def end_words(folder: SweepFolder, result: Result) -> Iterator[str]:
    """Sentences about the end of a sweep."""
    for job in folder.jobs:
        state = result.states[job.name]
        outcome = result.failed.get(job.name) or state.outcome
        if outcome is not None:
            log = folder.path / "logs" / f"{job.name}.txt"
            where = "" if outcome.kind == "diverged" else f" (see {log})"
            yield f"{job.name} failed: {outcome.failed}{where}"
        elif state.diverged:
            yield f"{job.name}: {state.diverged} of {job.size} runs diverged"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def in_time(seconds: float) -> str:
    """A time as people write it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600 * 48:
        return str(timedelta(seconds=round(seconds, -1)))
    return f"{seconds / 86400:.1f} days"
