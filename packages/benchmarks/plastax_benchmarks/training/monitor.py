"""The measurements of `--monitor-every`: of all members at once, in one program, at the start of a task."""

import logging
import math
from typing import NamedTuple

import jax
from jaxtyping import PRNGKeyArray

import plastax_diagnostics as diagnostics

from ..problems.stream import Task
from .curvature import CONTRACTION, look, new_networks
from .examples import some_examples
from .task import Learner, TaskView, Trainer


log = logging.getLogger(__name__)


class _OnTask(NamedTuple):
    """A learner and the task that it is about to learn."""

    learner: Learner
    task: Task


def monitor_of(trainer: Trainer) -> diagnostics.Monitor:
    """The monitor of a run, with the step budget of its first task."""

    def apply(found: _OnTask, inputs):
        return trainer.apply(found.learner, found.task, inputs, train=False)

    budget = diagnostics.StepBudget(trainer.config.optimizer.slow_rate, max(trainer.steps_in(0), 1), CONTRACTION)
    return diagnostics.Monitor(
        lambda found, inputs: apply(found, inputs)[0],
        trainer.problem.loss,
        budget,
        features=lambda found, inputs: apply(found, inputs)[1],
        where=lambda found: found.learner.params,
    )


def measure(monitor: diagnostics.Monitor, trainer: Trainer, learner: Learner, view: TaskView) -> diagnostics.Measured:
    """Measures a learner on training rows of the task that it is about to learn, as a pure function."""
    task = trainer.task(view)
    rows = diagnostics.CHEAP.samples
    found, _ = some_examples(trainer.problem, view.data, task, _key(view), rows, held_out=False)
    rows = (found.inputs, found.targets)
    # The probe is the same in all tasks.
    return monitor.traced(_OnTask(learner._replace(opt_state=None), task), rows, view.keys.order)


def score(trainer: Trainer, learner: Learner, view: TaskView, budget: diagnostics.StepBudget) -> dict[str, float]:
    """The score against new networks, for `--monitor-score`: of one learner, on as many rows as a report takes.

    It is empty for networks with statistics of batches, and if new networks do not learn anything in a trial either.
    """
    fresh = new_networks(trainer, learner)
    if fresh is None:
        return {}
    model, rows = look(trainer, learner, view, _key(view), diagnostics.CHEAP.trial_samples, held_out=False)
    data = (rows.inputs, rows.targets)
    try:
        found = diagnostics.plasticity_score(model, trainer.problem.loss, learner.params, data, budget, fresh=fresh)
    except ValueError as error:
        log.warning("the score of task %d is left out: %s", int(view.index), error)
        return {}
    numbers = {"plasticity": found.value, "plasticity_lower": found.lower, "plasticity_upper": found.upper}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _key(view: TaskView) -> PRNGKeyArray:
    # 1 to 4 are for the rows of `evaluate` and of `diagnose`.
    return jax.random.fold_in(jax.random.fold_in(view.keys.order, view.index), 5)
