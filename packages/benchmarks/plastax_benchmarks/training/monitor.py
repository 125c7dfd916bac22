"""The measurements of `--monitor-every`: of all members at once, in one program, at the start of a task."""

from typing import NamedTuple

import jax

import plastax_diagnostics as diagnostics

from ..problems.stream import Task
from .curvature import CONTRACTION
from .examples import some_examples
from .task import Learner, TaskView, Trainer


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
    # The probe is the same in all tasks. 1 to 4 are for the rows of `evaluate` and of `diagnose`.
    draws = jax.random.fold_in(jax.random.fold_in(view.keys.order, view.index), 5)
    found, _ = some_examples(trainer.problem, view.data, task, draws, diagnostics.CHEAP.samples, held_out=False)
    rows = (found.inputs, found.targets)
    return monitor.traced(_OnTask(learner._replace(opt_state=None), task), rows, view.keys.order)
