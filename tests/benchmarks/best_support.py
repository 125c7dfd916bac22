"""Made-up run folders of sweeps, and their best configurations."""

import json

from json_lines import write_lines

from plastax_benchmarks.config import configure
from plastax_benchmarks.report.best import best_of


def write(folder, results, method="l2", *, problem="permuted-mnist", metric="online_accuracy", outcome=None, **changes):
    """A run folder. `results` has, for each combination of a sweep, `result[seed][task]`; null is a diverged seed.

    A combination is a tuple of pairs, such as `(("weight_decay", 0.1),)`.
    """
    folder.mkdir(parents=True)
    combinations = [dict(each) for each in results]
    per_seed = next(iter(results.values()))
    changes = {"num_tasks": max(map(len, per_seed)), **changes} if problem != "slippery-ant" else changes
    config = configure(problem, "laptop", method, seeds=len(per_seed), **changes)
    stored = config.as_json() | ({"sweep": combinations} if combinations != [{}] else {})
    (folder / "config.json").write_text(json.dumps(stored))
    window = (
        config.settings["num_envs"] * config.settings["num_steps"] * config.settings["log_every"]
        if problem == ("slippery-ant")
        else None
    )
    lines = []
    for combination, seeds in zip(combinations, results.values(), strict=True):
        for i, values in enumerate(seeds):
            for task, value in enumerate(values):
                where = {"task": task} if window is None else {"step": (task + 1) * window}
                failed = {"failed": True} if value is None and window is None else {}
                lines.append(where | {"seed": config.seed + i, **combination, metric: value} | failed)
    if lines:
        write_lines(folder / "metrics.jsonl", lines)
    if outcome is not None:
        (folder / "outcome.json").write_text(json.dumps(outcome))
    return config


def decay(value):
    return (("weight_decay", value),)


def only(folder, **options):
    (method,) = best_of(folder, **options).methods
    return method


def by_decay(method):
    return {one.values["weight_decay"]: one for one in method.candidates}


THREE = {
    decay(0.01): [[0.5, 0.7], [0.4, 0.4], [0.6, 0.8]],
    decay(0.001): [[0.7, 0.8], [0.5, 0.7], [0.8, 0.9]],
    decay(0.1): [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]],
}
