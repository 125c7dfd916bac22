"""Everything that might predict how a network learns a task, measured at the task's start; and what it then reaches."""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import plastax_diagnostics as diagnostics

from ...problems.stream import Examples
from ...training.curvature import CONTRACTION, look
from ...training.losses import hits, losses
from ...training.task import Learner, TaskView, Trainer
from .settings import Setting


class Work(NamedTuple):
    """How much work a measurement may be: rows, order of the spectra, and steps of trial training."""

    rows: int
    order: int
    steps: int


DENSE, CONVOLUTIONS, SEQUENCES = Work(250, 40, 1000), Work(100, 15, 300), Work(50, 15, 200)

LINEAR_SIDES = {"linear": 800, "wide_linear": 2000}
"""The largest sides (rows x outputs) of tangent kernels for linearized training."""

LINEAR_WINDOWS = 16
"""Rows of linearized training for sequences, whose kernel is not written out."""

TRIAL_STEPS = (10, 30, 100, 300, 1000)
"""Moments of trial training at which its loss is recorded, or its end if that is earlier."""

OUTCOME_ROWS = 1000
"""Training rows on which the result is measured, at most."""


def rows_of(trainer: Trainer, learner: Learner, view: TaskView, most: int) -> tuple[diagnostics.ApplyModel, Examples]:
    """The network as a function, and training rows of a task: the same rows for all networks on it."""
    key = jax.random.fold_in(jax.random.fold_in(view.keys.order, view.index), 20)
    return look(trainer, learner, view, key, most, held_out=False)


def budget_of(trainer: Trainer, setting: Setting, task: int) -> diagnostics.StepBudget:
    """The steps of a task, and the learning rate of plain SGD."""
    rate = trainer.config.optimizer.slow_rate if setting.rate is None else setting.rate
    return diagnostics.StepBudget(rate, trainer.steps_in(task), CONTRACTION)


def measures(
    trainer: Trainer,
    learner: Learner,
    view: TaskView,
    budget: diagnostics.StepBudget,
    own: optax.GradientTransformation | None,
) -> dict[str, float]:
    """All measures of a network at the start of a task.

    **Arguments:**

    - `trainer`, `learner`, `view`: the network and the task.
    - `budget`: of the task.
    - `own`: the optimizer of the setting if that is not plain SGD, for trial training.
    """
    work = _work(trainer)
    model, rows = rows_of(trainer, learner, view, work.rows)
    data, loss, key = (rows.inputs, rows.targets), trainer.problem.loss, jax.random.key(0)
    effort = diagnostics.Effort(work.order, 1, work.order, work.rows, exact=False, dtype=None)
    report = diagnostics.plasticity_report(model, loss, learner.params, data, budget, key=key, effort=effort)
    train = partial(diagnostics.trial_training, model, loss, learner.params, data, budget, steps=work.steps)
    trial = train()
    linear: dict[str, float] = {}
    for name, side in LINEAR_SIDES.items():
        few = _part(data, _linear_rows(trainer, side))
        linear |= _of_linear(name, diagnostics.linearized_training(model, loss, learner.params, few, budget))
        linear |= {f"{name}_base_{what}": value for what, value in baseline(loss, few[1]).items()}
    return (
        _of_report(report)
        | _of_kernel(model, learner.params, _part(rows.inputs, _linear_rows(trainer, LINEAR_SIDES["linear"])))
        | {f"base_{name}": value for name, value in baseline(loss, rows.targets).items()}
        | linear
        | _of_trial("trial", trial)
        | _of_trial("own_trial", trial if own is None else train(optimizer=own))
    )


def _work(trainer: Trainer) -> Work:
    if len(trainer.problem.input_shape) > 1:
        return CONVOLUTIONS
    return SEQUENCES if trainer.config.network.name == "transformer" else DENSE


def _linear_rows(trainer: Trainer, side: int) -> int:
    if trainer.config.network.name == "transformer":
        return LINEAR_WINDOWS
    return max(2, side // trainer.problem.outputs)


def _part(tree: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def outcome(trainer: Trainer, learner: Learner, view: TaskView) -> dict[str, float]:
    """Loss and accuracy of a network on training rows of a task, beside those of the best constant."""
    model, rows = rows_of(trainer, learner, view, OUTCOME_ROWS)
    value, right = _loss_and_accuracy(trainer.problem, model, learner.params, rows)
    return {"loss": float(value), "accuracy": float(right)}


def baseline(loss: str, targets: Any) -> dict[str, float]:
    """Loss and accuracy of the best constant prediction: of a network that cannot use its inputs."""
    targets = np.asarray(targets)
    if loss == "cross_entropy":
        targets = targets.ravel()  # Sequences have a target for each token.
        shares = np.bincount(targets) / len(targets)
        return {"loss": float(-np.sum(shares * np.log(np.maximum(shares, 1e-300)))), "accuracy": float(shares.max())}
    return {"loss": float(0.5 * np.sum(np.var(targets.astype(np.float64), axis=0))), "accuracy": math.nan}


@eqx.filter_jit
def _loss_and_accuracy(problem, model, params, rows):
    outputs = model(params, rows.inputs)
    return jnp.mean(losses(problem, outputs, rows.targets)), jnp.mean(hits(problem, outputs, rows.targets))


def _of_report(report: diagnostics.PlasticityReport) -> dict[str, float]:
    layers, units = report.layers, sum(layer.units for layer in report.layers)
    condition, residual, gram = report.condition, report.residual, report.gram
    shares = {
        name: sum(getattr(layer, name) * layer.units for layer in layers) / units
        for name in ("dead", "dormant", "always_active")
    }
    return shares | {
        "hessian_rank": report.hessian.epsilon_rank.value,
        "ggn_rank": math.nan if gram is None else gram.epsilon_rank.value,
        "residual_left": math.nan if residual is None else residual.predicted.value,
        "fast_fraction": math.nan if residual is None else residual.fast_fraction.value,
        "confident_mistakes": math.nan if residual is None else residual.confident_mistakes,
        "condition_margin": math.nan if condition is None else condition.fast_fraction.value - condition.required,
        "step_size": math.nan if condition is None else condition.step_size,
        "effective_rank": float(np.mean([layer.effective_rank for layer in layers])),
        "last_effective_rank": layers[-1].effective_rank,
        "stable_rank": float(np.mean([layer.stable_rank for layer in layers])),
        "feature_norm": layers[-1].feature_norm,
        "weight_norm": math.sqrt(sum(row.weight_norm**2 for row in report.norms)),
        "gradient_norm": math.sqrt(sum(row.gradient_norm**2 for row in report.norms)),
        "loss": report.loss_value,
        "sharpness": report.hessian.largest,
        "trace": report.hessian.trace.value,
    }


def _of_kernel(model: Any, params: Any, inputs: Any) -> dict[str, float]:
    """Condition number and entropy rank of the tangent kernel; NaN for sequences, whose kernel is not written out."""
    if jax.eval_shape(model, params, inputs).ndim > 2:
        return dict.fromkeys(("ntk_condition", "ntk_effective_rank", "ntk_trace"), math.nan)
    matrix = diagnostics.exact_gram(diagnostics.ntk(model, params, inputs)).matrix
    values = np.linalg.eigvalsh(matrix)
    largest = float(values[-1])
    floor = max(largest * len(values) * float(np.finfo(np.float32).eps), 1e-300)
    shares = np.maximum(values, 0.0) / max(float(np.sum(np.maximum(values, 0.0))), 1e-300)
    entropy = -float(np.sum(shares * np.log(np.maximum(shares, 1e-300))))
    return {
        "ntk_condition": largest / max(float(values[0]), floor),
        "ntk_effective_rank": math.exp(entropy),
        "ntk_trace": float(np.trace(matrix)),
    }


def _of_linear(name: str, found: diagnostics.LinearizedTraining) -> dict[str, float]:
    return {
        f"{name}_start_accuracy": _number(found.accuracy),
        f"{name}_accuracy": _number(found.final_accuracy),
        f"{name}_loss": found.final_loss,
    }


def _of_trial(name: str, found: diagnostics.TrialTraining) -> dict[str, float]:
    last = len(found.losses) - 1
    marks = {steps: min(steps, last) for steps in TRIAL_STEPS}
    values = {f"{name}_loss_{steps}": found.losses[place] for steps, place in marks.items()}
    if found.accuracies is None:
        return values | {f"{name}_accuracy_{steps}": math.nan for steps in marks}
    return values | {f"{name}_accuracy_{steps}": found.accuracies[place] for steps, place in marks.items()}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
