"""Made-up finished runs for the needs of figures."""

import dataclasses
import json

from json_lines import write_lines

import plastax_diagnostics as diagnostics


def finish(folder, need, accuracy=lambda seed, task: 0.8, *, seeds=None, tasks=None, rank=None, report=None, **values):
    """Writes the run of a need as if it had been trained.

    `accuracy` and `rank` are functions of seed and task; `report` is one of a task. `values` replace settings of the
    need.
    """
    config = need.config.as_json() | values
    seeds = need.seeds if seeds is None else seeds
    tasks = config["num_tasks"] if tasks is None else tasks
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config | {"seed": seeds[0], "seeds": len(seeds)}))
    rows, lines = [], []
    for task in range(tasks):
        for seed in seeds:
            value = accuracy(seed, task)
            rows.append(
                {"task": task, "seed": seed, "dead_fraction": 1 - value, "effective_rank": {"a": 20 * value}}
                | dict.fromkeys(("online_accuracy", "test_accuracy", "train_accuracy"), value)
            )
            if rank is not None:
                found = {"eps": 0.1, "samples": 9, "epsilon_rank": rank(seed, task), "raw_epsilon_rank": 100.0 + task}
                lines.append({"task": task, "seed": seed, "when": "start", "rows": "held_out"} | found)
            if report is not None and task in need.report_tasks:
                (folder / "reports").mkdir(exist_ok=True)
                for kind in ("train", "held_out"):
                    name = f"task{task:05}-seed{seed}-start-{kind}.json"
                    (folder / "reports" / name).write_text(report(task).to_json())
    write_lines(folder / "metrics.jsonl", rows)
    write_lines(folder / "diagnostics.jsonl", lines)
    return folder


def with_rank(report, value):
    """The report with an exact epsilon-rank of the Hessian."""
    rank = diagnostics.Estimate(value, 0.0, value, value, True)
    return dataclasses.replace(report, hessian=dataclasses.replace(report.hessian, epsilon_rank=rank))
