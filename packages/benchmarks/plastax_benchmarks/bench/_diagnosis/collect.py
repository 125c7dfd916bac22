"""Trains networks over many tasks, measures them at the starts of tasks, and writes a row for each as it goes."""

import csv
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...problems.catalog import SupervisedProblem
from ...problems.load import load_problem
from ...training.groups import Group, make_groups, train_group
from ...training.host import Pace
from ...training.members import members_of
from ...training.task import Learner
from .measures import OUTCOME_ROWS, baseline, budget_of, measures, outcome, rows_of
from .settings import FRESH, METHODS, Setting


Row = dict[str, Any]

NAMES = ("setting", "half", "problem", "network", "activation", "optimizer", "method", "seed", "task", "fresh")

EARLY = 0.1
"""The part of a task's training after which its progress is recorded, too."""

_FAR = 100_000
"""Between the indices of several new networks for one task."""


class Table:
    """The rows of a run, in a file that is complete after each of them."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[Row] = read_rows(path) if path.exists() else []
        self.known = {key_of(row) for row in self.rows}

    def has(self, row: Row) -> bool:
        """Whether the row of that network at that task is there."""
        return key_of(row) in self.known

    def add(self, row: Row) -> None:
        """Writes a row. The header is written with the first one, which must have all columns."""
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            if new:
                csv.writer(file).writerow(row)
            columns = list(row) if new else header(self.path)
            csv.DictWriter(file, columns, restval="nan").writerow(row)
        self.rows.append(row)
        self.known.add(key_of(row))


def header(path: Path) -> list[str]:
    """The columns of a table."""
    with path.open(newline="") as file:
        return next(csv.reader(file))


def key_of(row: Row) -> tuple:
    """What identifies a row."""
    return row["setting"], row["method"], int(row["seed"]), int(row["task"]), int(row["fresh"])


def read_rows(path: Path) -> list[Row]:
    """The rows of a table. Columns but names are numbers. An incomplete last row, from a kill, is left out."""
    words = {"setting", "half", "problem", "network", "activation", "optimizer", "method"}
    rows = []
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if None in line.values():
                continue
            rows.append({name: value if name in words else float(value) for name, value in line.items()})
    return rows


def drop_incomplete_line(path: Path) -> None:
    """Removes the end of a table that was being written when the program was killed."""
    if path.exists():
        text = path.read_bytes()
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def collect(
    settings: list[Setting],
    table: Table,
    *,
    seeds: int,
    data_dir: Path | None,
    quick: bool,
    log: Callable[[str], None],
) -> None:
    """Adds the missing rows of all settings: of all methods for one setting after the other, one seed at a time."""
    for seed in range(seeds):
        for setting in settings:
            for method in METHODS:
                log(f"seed {seed}: {setting.name}, {method}")
                for row in rows_of_method(setting, method, seed, table, data_dir=data_dir, quick=quick):
                    table.add(row)


def rows_of_method(
    setting: Setting, method: str, seed: int, table: Table, *, data_dir: Path | None, quick: bool
) -> Iterator[Row]:
    """The rows of one network and of the new networks beside it, except for those that are in the table."""
    config = setting.config(method, 1, data_dir, quick=quick).replace(seed=seed)
    tasks = config.settings["num_tasks"]
    measured = setting.measured(tasks, quick=quick)
    names = {
        "setting": setting.name,
        "half": setting.half,
        "problem": setting.problem,
        "network": config.network.name,
        "activation": config.settings["activation"],
        "optimizer": config.optimizer.name,
        "method": method,
        "seed": seed,
    }
    # New networks of `reset` are those of plain backprop.
    fresh = () if method == "reset" else range(FRESH)
    wanted = [names | {"task": task, "fresh": place} for task in measured for place in (-1, *fresh)]
    if all(map(table.has, wanted)):
        return
    assert isinstance(config.problem, SupervisedProblem)
    problem, data = load_problem(config.problem, config.data_dir)
    (group,) = make_groups(config, problem, data, members_of(config, {}))
    own = config.optimizer.make(resets_units=False) if config.optimizer.name != "sgd" else None
    measure = partial(_measured, group, setting, own)
    learner, pace = group.replicas.init(0), Pace()
    for task in range(measured[-1] + 1):
        if config.method.renews_network and task > 0:
            learner = group.replicas.init(task)
        learner = group.replicas.begin_task(learner)
        row = names | {"task": task, "fresh": -1}
        if not _finite(learner):
            return  # It has diverged. There is nothing left to measure.
        asked = task in measured and not table.has(row)
        before = measure(learner, task) if asked else {}
        learner, results = _train(group, pace, learner, task)
        if asked:
            yield row | before | results
        for place in fresh if task in measured else ():
            row = names | {"task": task, "fresh": place}
            if table.has(row):
                continue
            new = group.replicas.begin_task(group.replicas.init(task + _FAR * (place + 1)))
            # They are the same for all methods.
            before = measure(new, task) if method == METHODS[0] else {}
            yield row | before | _train(group, pace, new, task)[1]


def _measured(group: Group, setting: Setting, own: Any, learner: Learner, task: int) -> Row:
    trainer, replicas, _ = group
    begin = time.perf_counter()
    budget = budget_of(trainer, setting, task)
    found = measures(trainer, replicas.devices.member(learner, 0), replicas.view(0, task), budget, own)
    return found | {"rate": budget.learning_rate, "steps": budget.steps, "seconds": time.perf_counter() - begin}


def _train(group: Group, pace: Pace, learner: Learner, task: int) -> tuple[Learner, Row]:
    """A task, with the result after a part of it and at its end."""
    trainer, replicas, _ = group
    steps, view = trainer.steps_in(task), replicas.view(0, task)
    blocks = max(1, int(EARLY * steps) // trainer.block)
    early, _ = replicas.train(learner, replicas.nothing(), task, 0, blocks)
    learner, totals = train_group(replicas, pace, learner, task, steps, lambda _: None)
    model_rows = rows_of(trainer, replicas.devices.member(learner, 0), view, OUTCOME_ROWS)[1]
    found = {
        f"{when}_{name}": value
        for when, each in (("early", early), ("reached", learner))
        for name, value in outcome(trainer, replicas.devices.member(each, 0), view).items()
    }
    evaluation = replicas.evaluate(learner, task)
    constant = baseline(trainer.problem.loss, model_rows.targets)
    return learner, found | {
        "constant_loss": constant["loss"],
        "constant_accuracy": constant["accuracy"],
        "online_loss": float(np.asarray(totals.loss)[0]) / steps,
        "online_accuracy": float(np.asarray(totals.correct)[0]) / steps,
        "test_loss": float(np.asarray(evaluation.test_loss)[0]),
        "test_accuracy": float(np.asarray(evaluation.test_accuracy)[0]),
    }


def _finite(learner: Learner) -> bool:
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in jax.tree.leaves(learner.params))
