"""How much curvature a network has left for a task: what `--diagnose-every` writes down, and the epsilon-rank alone."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

import plastax_diagnostics as diagnostics

from ..problems.stream import Examples
from .task import Keys, Learner, Trainer, some_examples


CONTRACTION = 1e-3
"""The share of a component that may be left at the end of a task for its direction to count as learnt in time."""

ROWS = {"train": False, "held_out": True}


LARGEST_SIDE = 3000
"""The largest side of an exact Gram matrix: rows x outputs."""

MOST_ROWS = 250
"""More than enough to distinguish networks."""

LARGE_SIDE = 500
"""The largest side for networks whose gradients do not all fit into `MEMORY`: they are computed several times."""

MEMORY = 2**30
"""Bytes for gradients with respect to convolutions."""


def diagnose(
    trainer: Trainer,
    learner: Learner,
    keys: Keys,
    data: PyTree,
    number: int,
    *,
    strengths: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[tuple[str, dict[str, Any], str]]:
    r"""Looks at one network as it would learn, or has learnt, a task: on rows of its training and on held-out rows.

    All epsilon-ranks share one threshold: the eigenvalue from which gradient descent, with all steps of the task,
    leaves at most a thousandth of a component. With momentum $m$ the learning rate counts as $\eta/(1 - m)$, which is
    what steps along a slow direction add up to; annealing, decay, Adam and Muon are not accounted for.

    `epsilon_rank` counts the eigenvalues of the generalised Gauss-Newton matrix exactly, on as many rows as this takes
    (at most 250); the report is about all rows, up to `diagnose_size`, with brackets where it is no exact count.
    Classes that are not in play have no part in either. The same arguments give the same lines and reports: no wall
    times are in them. New programs are compiled when the number of rows or classes changes.

    **Arguments:**

    - `trainer`, `data`: of the run.
    - `learner`, `keys`: of one member.
    - `number`: of the task.
    - `strengths`: the member's values of settings that are swept.

    **Returns:**

    For each kind of rows (`"train"`, `"held_out"`) its name, a line for `diagnostics.jsonl`, and the plasticity report
    as JSON. Raises a `ValueError` if the network has diverged.
    """
    budget = _budget(trainer, number, strengths)
    for name, held_out in ROWS.items():
        key = _key(keys, number, held_out)
        model, examples = look(trainer, learner, keys, data, number, key, trainer.settings.diagnose_size, held_out)
        samples = diagnostics.Samples((examples.inputs, examples.targets), chunk=_CHUNKS.get(trainer.settings.network))
        report = diagnostics.plasticity_report(
            model,
            trainer.problem.loss,
            learner.params,
            samples,
            budget,
            key=jax.random.fold_in(key, 1),
            effort=_effort(trainer),
        )
        report = dataclasses.replace(report, seconds=0.0)
        line = _gram_numbers(trainer, learner, model, examples, number, budget) | _report_numbers(report)
        yield name, line, report.to_json()


def epsilon_rank_at(
    trainer: Trainer,
    learner: Learner,
    keys: Keys,
    data: PyTree,
    number: int,
    rows: int = MOST_ROWS,
    eps: float | None = None,
    *,
    strengths: Mapping[str, float] = MappingProxyType({}),
) -> tuple[float, float]:
    """How many directions of a network are steep enough to learn a task in time, exactly, from held-out rows.

    **Arguments:**

    - `trainer`, `learner`, `keys`, `data`, `number`: as in `diagnose`.
    - `rows`: the most rows to use, and rows x outputs at most 3000.
    - `eps`: threshold; by default that of `diagnose`.
    - `strengths`: as in `diagnose`.

    **Returns:**

    The number of eigenvalues of the generalised Gauss-Newton matrix above the threshold, and the threshold.
    """
    eps = _budget(trainer, number, strengths).threshold if eps is None else eps
    model, examples = look(trainer, learner, keys, data, number, _key(keys, number, True), rows, held_out=True)
    return float(_exact_gram(trainer, learner, model, examples, rows).count_above(eps)), eps


def rows_for(outputs: int, params: PyTree, most: int = MOST_ROWS) -> int:
    """The number of rows of an exact Gram matrix, for a network with `outputs` outputs."""
    written_out = sum(leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim > 2)
    fits = written_out * 8 * min(LARGEST_SIDE, most * outputs) <= MEMORY
    return max(1, min(most, (LARGEST_SIDE if fits else LARGE_SIDE) // outputs))


def _exact_gram(
    trainer: Trainer, learner: Learner, model: diagnostics.ApplyModel, examples: Examples, rows: int = MOST_ROWS
) -> diagnostics.ExactGram:
    """The loss-weighted Gram matrix of some rows."""
    count = rows_for(_width(trainer, model), learner.params, rows)
    data = (examples.inputs[:count], examples.targets[:count])
    return diagnostics.exact_gram(
        diagnostics.loss_weighted_gram(model, trainer.problem.loss, learner.params, data, dtype="float64")
    )


def _budget(trainer: Trainer, number: int, strengths: Mapping[str, float]) -> diagnostics.StepBudget:
    """The learning rate that counts, and the steps of a task."""
    settings = dataclasses.replace(trainer.settings, **strengths)
    rate = settings.learning_rate
    if settings.optimizer == "sgd":
        rate /= 1 - settings.momentum
    return diagnostics.StepBudget(rate, trainer.steps_in(number), CONTRACTION)


def _key(keys: Keys, number: int, held_out: bool):
    # 1 and 2 are for the rows of `evaluate`.
    return jax.random.fold_in(jax.random.fold_in(keys.order, number), 3 + held_out)


def look(
    trainer: Trainer, learner: Learner, keys: Keys, data: PyTree, number: int, key, most: int, held_out: bool
) -> tuple[diagnostics.ApplyModel, Examples]:
    """The outputs in play as a function, and rows of a task with targets among them."""
    found, weights = _draw(trainer.problem, data, keys.stream, jnp.asarray(number), key, most, held_out)
    count = int(np.sum(np.asarray(weights)))
    examples = Examples(found.inputs[:count], found.targets[:count])
    classes = trainer.problem.active_classes(data, keys.stream, number)
    if classes is None:
        return diagnostics.apply_model(trainer.static, learner.model_state), examples
    places = jnp.asarray(np.searchsorted(classes, np.asarray(examples.targets)), jnp.int32)
    return (
        diagnostics.apply_model(trainer.static, learner.model_state, outputs=jnp.asarray(classes, jnp.int32)),
        Examples(examples.inputs, places),
    )


@eqx.filter_jit
def _draw(problem, data, stream, number, key, most, held_out):
    return some_examples(problem, data, problem.task(data, stream, number), key, most, held_out=held_out)


def _gram_numbers(
    trainer: Trainer,
    learner: Learner,
    model: diagnostics.ApplyModel,
    examples: Examples,
    number: int,
    budget: diagnostics.StepBudget,
) -> dict[str, Any]:
    """What the exact Gram matrix of a few rows says."""
    gram, eps = _exact_gram(trainer, learner, model, examples), budget.threshold
    numbers = {
        "eps": eps,
        "epsilon_rank": float(gram.count_above(eps)),
        "epsilon_rank_samples": gram.samples,
        "size": len(gram.matrix),
        "largest": gram.largest,
        "trace": gram.trace,
    }
    if trainer.settings.network == "gated-linear":
        # As in the paper's theory: the raw tangent kernel, and a step for each row of the training set.
        kernel = diagnostics.ntk(model, learner.params, examples.inputs[: gram.samples], dtype="float64")
        raw = diagnostics.exact_gram(kernel)
        raw_eps = dataclasses.replace(budget, steps=trainer.problem.train_count(number)).threshold
        numbers |= {"raw_eps": raw_eps, "raw_epsilon_rank": float(raw.count_above(raw_eps)), "raw_largest": raw.largest}
    return numbers


def _report_numbers(report: diagnostics.PlasticityReport) -> dict[str, Any]:
    """What of a report is short enough for a line."""
    rank, residual, units = report.hessian.epsilon_rank, report.residual, sum(x.units for x in report.layers)
    predicted = math.inf if residual is None else residual.predicted.value
    return {
        "samples": report.samples,
        "loss": report.loss_value,
        "hessian_epsilon_rank": rank.value,
        "hessian_epsilon_rank_lower": rank.lower,
        "hessian_epsilon_rank_upper": rank.upper,
        "hessian_size": report.hessian.size,
        "hessian_largest": report.hessian.largest,
        "hessian_smallest": report.hessian.smallest,
        "hessian_negative_share": report.hessian.negative_share.value,
        "verdict": report.verdict,
        # Infinite where steps overshoot, which JSON cannot hold. Where a class has probability 0 there is no residual.
        "predicted_residual": predicted if math.isfinite(predicted) else None,
        "fast_fraction": None if residual is None else residual.fast_fraction.value,
        "dead_fraction": sum(x.dead * x.units for x in report.layers) / units,
    }


def _width(trainer: Trainer, model: diagnostics.ApplyModel) -> int:
    return trainer.problem.outputs if model.outputs is None else len(model.outputs)


_CHUNKS = {"convnet": 100, "resnet18": 50}
"""Rows at a time: the patches of a convolution are many times its input."""


def _effort(trainer: Trainer) -> diagnostics.Effort:
    """How much work a report may be: products with convolutions are expensive, so their brackets are wider.

    On CPU a ResNet-18 takes hours for 2000 rows, since one product takes minutes: lower `diagnose_size` there.
    """
    size, network = trainer.settings.diagnose_size, trainer.settings.network
    order = {"convnet": 24, "resnet18": 16}.get(network, 60)
    return diagnostics.Effort(order, 1, order, size, exact=True, dtype=np.float64)
