"""How much curvature a network has left for a task: the measurements of `--diagnose-every`, and the epsilon-rank."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jaxtyping import PRNGKeyArray, PyTree

import plastax_diagnostics as diagnostics

from ..problems.stream import Examples
from .examples import some_examples
from .task import Learner, TaskView, Trainer


CONTRACTION = 1e-3
"""The fraction of a component that may be left at the end of a task for its direction to count as learned."""

ROWS = {"train": False, "held_out": True}


LARGEST_SIDE = 3000
"""The largest side of an exact Gram matrix: rows x outputs."""

MOST_ROWS = 250
"""More than enough to distinguish networks."""

LARGE_SIDE = 500
"""The largest side for networks whose gradients do not all fit into `MEMORY` and are computed several times."""

MEMORY = 2**30
"""Bytes for gradients with respect to convolutions."""


def diagnose(
    trainer: Trainer, learner: Learner, view: TaskView, *, values: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[tuple[str, dict[str, Any], str]]:
    r"""Measures the curvature of one network before or after a task, on training rows and on held-out rows.

    All epsilon-ranks share one threshold: the eigenvalue from which gradient descent, with all steps of the task,
    leaves at most a thousandth of a component. With momentum $m$ the learning rate counts as $\eta/(1 - m)$, which is
    the effective rate along a slow direction. Annealing, decay, Adam and Muon are not taken into account.

    `epsilon_rank` counts the eigenvalues of the generalized Gauss-Newton matrix exactly, on at most 250 rows. The
    report covers all rows, up to `diagnose_size`, with brackets where counts are not exact. Inactive classes are
    left out of both. The same arguments give the same lines and reports, without wall times. New programs are compiled
    when the number of rows or classes changes.

    **Arguments:**

    - `trainer`: the trainer of the run.
    - `learner`: the learner of one member.
    - `view`: the task.
    - `values`: the member's values of the swept settings.

    **Returns:**

    For each kind of rows (`"train"`, `"held_out"`) its name, a line for `diagnostics.jsonl`, and the plasticity report
    as JSON. Raises a `ValueError` if the network has diverged.
    """
    budget = step_budget(trainer, view, values)
    for name, held_out in ROWS.items():
        key = _key(view, held_out)
        model, examples = look(trainer, learner, view, key, trainer.config.measurement.diagnose_size, held_out)
        chunk = _CHUNKS.get(trainer.config.network.name)
        mesh = _mesh(trainer, len(examples.inputs))
        samples = diagnostics.Samples((examples.inputs, examples.targets), chunk=chunk, mesh=mesh)
        report = diagnostics.plasticity_report(
            model,
            trainer.problem.loss,
            learner.params,
            samples,
            budget,
            key=jax.random.fold_in(key, 1),
            effort=_effort(trainer),
            fresh=new_networks(trainer, learner),
        )
        report = dataclasses.replace(report, seconds=0.0)
        line = _gram_numbers(trainer, learner, model, examples, int(view.index), budget) | _report_numbers(report)
        yield name, line, report.to_json()


def new_networks(trainer: Trainer, learner: Learner) -> Callable[[PRNGKeyArray], PyTree] | None:
    """How to make new networks to compare a learner with; `None` for networks with statistics of batches.

    Those of BatchNorm are of the trained network, and do not fit new ones.
    """
    return None if jax.tree.leaves(learner.model_state) else trainer.new_parameters


class EpsilonRank(NamedTuple):
    """The number of eigenvalues above a threshold, the threshold, and the number of rows that were used.

    `raw` has the numbers of the raw tangent kernel if the network is linearized; it is empty for other networks.
    """

    count: float
    eps: float
    samples: int
    raw: Mapping[str, float] = MappingProxyType({})


def epsilon_rank_at(
    trainer: Trainer,
    learner: Learner,
    view: TaskView,
    rows: int = MOST_ROWS,
    eps: float | None = None,
    *,
    values: Mapping[str, Any] = MappingProxyType({}),
) -> EpsilonRank:
    """The number of directions with enough curvature to be learned within a task, counted exactly on held-out rows.

    **Arguments:**

    - `trainer`, `learner`, `view`: as in `diagnose`.
    - `rows`: the largest number of rows to use; rows x outputs is at most 3000.
    - `eps`: the threshold; by default that of `diagnose`.
    - `values`: as in `diagnose`.

    **Returns:**

    The number of eigenvalues of the generalized Gauss-Newton matrix above the threshold, the threshold, and the
    number of rows that were used. For a linearized network also the numbers of its raw tangent kernel.
    """
    budget = step_budget(trainer, view, values)
    eps = budget.threshold if eps is None else eps
    model, examples = look(trainer, learner, view, _key(view, True), rows, held_out=True)
    gram = _exact_gram(trainer, learner, model, examples, rows)
    raw = _raw_numbers(trainer, learner, model, examples.inputs[: gram.samples], int(view.index), budget)
    return EpsilonRank(float(gram.count_above(eps)), eps, gram.samples, raw)


def rows_for(outputs: int, params: PyTree, most: int = MOST_ROWS) -> int:
    """The number of rows for an exact Gram matrix of a network with `outputs` outputs."""
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


def step_budget(trainer: Trainer, view: TaskView, values: Mapping[str, Any]) -> diagnostics.StepBudget:
    """The effective learning rate, and the steps of a task, of a member with these values of the swept settings."""
    rate = trainer.config.replace(**values).optimizer.slow_rate
    return diagnostics.StepBudget(rate, trainer.steps_in(int(view.index)), CONTRACTION)


def _key(view: TaskView, held_out: bool):
    # 1 and 2 are for the rows of `evaluate`.
    return jax.random.fold_in(jax.random.fold_in(view.keys.order, view.index), 3 + held_out)


def look(
    trainer: Trainer, learner: Learner, view: TaskView, key: PRNGKeyArray, most: int, held_out: bool
) -> tuple[diagnostics.ApplyModel, Examples]:
    """The active outputs as a function, and rows of a task with targets among them."""
    found, weights = _draw(trainer.problem, view.data, view.keys.stream, view.index, key, most, held_out)
    count = int(np.sum(np.asarray(weights)))
    examples = Examples(found.inputs[:count], found.targets[:count])
    classes = trainer.problem.active_classes(view.data, view.keys.stream, int(view.index))
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
    """Measurements from the exact Gram matrix of a few rows."""
    gram, eps = _exact_gram(trainer, learner, model, examples), budget.threshold
    numbers = {
        "eps": eps,
        "epsilon_rank": float(gram.count_above(eps)),
        "epsilon_rank_samples": gram.samples,
        "size": len(gram.matrix),
        "largest": gram.largest,
        "trace": gram.trace,
    }
    return numbers | _raw_numbers(trainer, learner, model, examples.inputs[: gram.samples], number, budget)


def _raw_numbers(
    trainer: Trainer,
    learner: Learner,
    model: diagnostics.ApplyModel,
    inputs: jax.Array,
    number: int,
    budget: diagnostics.StepBudget,
) -> dict[str, float]:
    """Measurements from the raw tangent kernel of a linearized network, as in the paper's theory; else nothing."""
    if trainer.config.network.name != "gated-linear":
        return {}
    raw = diagnostics.exact_gram(diagnostics.ntk(model, learner.params, inputs, dtype="float64"))
    # A step for each row of the training set.
    eps = dataclasses.replace(budget, steps=trainer.problem.train_count(number)).threshold
    return {"raw_eps": eps, "raw_epsilon_rank": float(raw.count_above(eps)), "raw_largest": raw.largest}


def _report_numbers(report: diagnostics.PlasticityReport) -> dict[str, Any]:
    """The part of a report that is short enough for a line."""
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
        "plasticity": None if report.plasticity is None else report.plasticity.value,
        # Infinite if steps overshoot, which JSON cannot hold; missing if a class has probability 0.
        "predicted_residual": predicted if math.isfinite(predicted) else None,
        "fast_fraction": None if residual is None else residual.fast_fraction.value,
        "dead_fraction": sum(x.dead * x.units for x in report.layers) / units,
    }


def _width(trainer: Trainer, model: diagnostics.ApplyModel) -> int:
    return trainer.problem.outputs if model.outputs is None else len(model.outputs)


_CHUNKS = {"convnet": 100, "resnet18": 50}
"""Rows at a time: the patches of a convolution take many times the memory of its input."""


def _mesh(trainer: Trainer, rows: int) -> jax.sharding.Mesh | None:
    """The devices of this process to spread the rows of a report over; `None` for one device.

    Only for networks with convolutions, whose products take most of the time. Products of dense networks use kernels
    that need all rows on one device. All rows are used on any number of devices: if they cannot be divided evenly,
    some devices are left out, so results only differ by rounding.
    """
    devices = jax.local_devices()
    if not trainer.config.network.takes_images:
        return None
    count = max(each for each in range(1, len(devices) + 1) if rows % each == 0)
    return jax.make_mesh((count,), ("samples",), (AxisType.Auto,), devices=devices[:count]) if count > 1 else None


def _effort(trainer: Trainer) -> diagnostics.Effort:
    """How much work to spend on a report. Products with convolutions are expensive, so their brackets are wider.

    On CPU a ResNet-18 takes hours for 2000 rows, since one product takes minutes: lower `diagnose_size` there.
    """
    size, network = trainer.config.measurement.diagnose_size, trainer.config.network.name
    order = {"convnet": 24, "resnet18": 16}.get(network, 60)
    return diagnostics.Effort(order, 1, order, size, exact=True, dtype=np.float64)
