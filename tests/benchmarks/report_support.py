"""Made-up run folders, and their numbers."""

import json

from json_lines import write_lines

from plastax_benchmarks.report.group import group_runs
from plastax_benchmarks.report.numbers import summarize
from plastax_benchmarks.report.read import read_runs
from plastax_benchmarks.report.sections import sections


def write_run(folder, accuracy, *, method="bp", first_seed=0, config=(), diagnostics=(), **fields):
    """A run with `accuracy[seed][task]`; `fields` are further entries, fixed or functions of (seed, task)."""
    folder.mkdir(parents=True)
    tasks = max(map(len, accuracy), default=0)
    settings = {"problem": "digits", "method": method, "preset": "laptop", "seeds": len(accuracy), "num_tasks": tasks}
    (folder / "config.json").write_text(json.dumps(settings | dict(config)))
    rows = [
        {"task": task, "seed": first_seed + seed, "online_accuracy": values[task]}
        | {name: field(seed, task) if callable(field) else field for name, field in fields.items()}
        for task in range(tasks)
        for seed, values in enumerate(accuracy)
        if task < len(values)
    ]
    write_lines(folder / "metrics.jsonl", rows)
    if diagnostics:
        write_lines(folder / "diagnostics.jsonl", diagnostics)
    return folder


def group_of(*folders):
    groups, left_out = group_runs(run for folder in folders for run in read_runs(folder))
    assert len(groups) == 1
    assert left_out == []
    return groups[0]


def summary(*folders, quantity=None):
    return summarize(group_of(*folders), quantity)


def table(whole, words):
    """The table of a summary whose title contains these words."""
    (found,) = [each for each in sections(whole) if words in each.title]
    return found


def epsilon_rank(task, seed, value, when="start", rows="held_out"):
    return {"task": task, "seed": seed, "when": when, "rows": rows, "samples": 250, "eps": 0.01, "epsilon_rank": value}


EIGHT = [[0.9, 0.7, 0.8, 0.8, 0.8, 0.8, 0.6, 0.4], [0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.4, 0.4]]


def write_ant(folder, windows=8, **config):
    """A run of the ant: 2 environments, 64 steps, 16 updates in a window of 2048 steps."""
    sizes = {"num_envs": 2, "num_steps": 64, "update_log_freq": 16, "hidden_size": 10, "total_steps": 16_000}
    write_run(folder, [[]], config={"problem": "slippery-ant", "num_tasks": 3, "lr": 1e-3, **sizes, **config})
    rows = [
        {"step": 2048 * (n + 1), "seed": 0, "return": 10.0 * n, "episode_length": 50, "reward": 0.5, "failed": False}
        | {"dead": {"actor": 1, "critic": n}}
        for n in range(windows)
    ]
    write_lines(folder / "metrics.jsonl", rows)
    return folder
