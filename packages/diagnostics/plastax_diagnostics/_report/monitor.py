"""Measures a network during training: one compiled program, plain numbers, and no errors when training diverges."""

import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._collapse.budget import StepBudget
from .._collapse.plasticity import plasticity_score
from .._features.units import unit_scalars
from .._operators.applicable import NotApplicableError
from .._operators.function import as_function, check_model, static_function
from .._operators.hessian import hessian, value_and_gradient
from .._operators.losses import LossLike, OutputLoss, TaskLoss, as_loss
from .._operators.mean import check_mean
from .._operators.model import as_pairs
from .._operators.precision import check_not_traced, precision
from .._operators.samples import Samples
from .._spectrum.lanczos import Coefficients, finish, traced_coefficients
from .._spectrum.result import Spectrum
from .._spectrum.spectrum import check_key
from .effort import CHEAP, draw, draw_trial, features_or_own, report_keys
from .results import CurvatureSummary
from .scalars import numbers_of, score_numbers


log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """What a [`plastax_diagnostics.Monitor`][] measures on the device. [`plastax_diagnostics.Monitor.scalars`][] makes
    numbers of it.

    **Arguments:**

    - `loss`: the loss of the batch.
    - `weight_norm`, `gradient_norm`: of all (selected) parameters together.
    - `layers`: [`plastax_diagnostics.unit_scalars`][] of the features.
    - `lanczos`: one Lanczos run with the Hessian for each probe.
    - `size`: the number of (selected) parameters.
    """

    loss: Float[Array, ""]
    weight_norm: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    layers: dict[str, Float[Array, ""]]
    lanczos: tuple[Coefficients, ...]
    size: Int[Array, ""]


class Monitor:
    """Measures the plasticity of a network while it trains.

    Everything is one program, compiled at the first call. Later calls with arrays of the same shapes do not compile
    again. A network that has diverged does not raise: its numbers are left out, and `valid` is 0.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        def model(params, inputs):
            return jnp.tanh(inputs @ params["in"]) @ params["out"]

        params = {"in": jnp.ones((5, 8)), "out": jnp.ones((8, 3))}
        batch = (jax.random.normal(jax.random.key(0), (20, 5)), jnp.arange(20) % 3)
        budget = diagnostics.StepBudget(learning_rate=0.1, steps=1000)
        monitor = diagnostics.Monitor(model, "cross_entropy", budget, every=100)
        for step in range(200):
            if monitor.due(step):
                numbers = monitor.measure(params, batch, jax.random.key(step))
        numbers["hessian/epsilon_rank"]
        ```

    **Arguments:**

    - `model`: a function `(params, inputs) -> outputs`. For a network of plastax, use
        [`plastax_diagnostics.apply_model`][]. Keep the monitor: a new one with a new `lambda` compiles again.
    - `loss`: `"cross_entropy"`, `"squared_error"`, or a function of (outputs, targets) that is a mean over samples. It
        need not be convex, and the outputs may be any pytree then. Use the task loss alone, without L2.
    - `budget`: the learning rate and the number of steps of a task. They determine the threshold of the epsilon-rank.
    - `features`: a function `(params, inputs) -> pytree of [samples, ..., units]`, for unit statistics. By default
        the features of a model from [`plastax_diagnostics.apply_model`][]; without features there are none.
    - `where`: selects the trained part of `params`, as in `equinox.tree_at`. By default all floating point arrays.
        With Flax variables that include running statistics: `where=lambda variables: variables["params"]`.
    - `every`: the number of steps from one measurement to the next, for `due`.
    - `samples`: the largest number of samples to use, drawn without replacement.
    - `order`, `probes`: of the spectrum of the Hessian: it takes `order * probes` products, two gradients each.
    - `eps`: the threshold of the epsilon-rank; by default that of the step budget.
    - `dormant_threshold`: see [`plastax_diagnostics.dormant_units`][].
    - `fresh`: a function from a key to the parameters of a new network. With it, `measure` also returns the score of
        [`plastax_diagnostics.plasticity_score`][], which trains a copy of the network for up to 1000 steps, and 3 new
        networks whenever the samples change. `params` must be a pytree of arrays then. By default there is no score.
    """

    def __init__(
        self,
        model: Callable,
        loss: LossLike,
        budget: StepBudget,
        *,
        features: Callable | None = None,
        where: Callable | None = None,
        every: int = 1000,
        samples: int = CHEAP.samples,
        order: int = CHEAP.order,
        probes: int = CHEAP.probes,
        eps: float | None = None,
        dormant_threshold: float = CHEAP.dormant_threshold,
        fresh: Callable[[PRNGKeyArray], PyTree] | None = None,
    ):
        check_model(model)
        for name, value in (("every", every), ("samples", samples), ("order", order), ("probes", probes)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")
        features = features_or_own(model, features)
        self.every = every
        self.eps = budget.threshold if eps is None else float(eps)
        self._task = _Task(as_function(model), as_loss(loss), None if features is None else as_function(features))
        where = None if where is None else static_function(where)
        self._settings = _Settings(where, samples, order, probes, dormant_threshold)
        self._functions, self._fresh, self._budget = (model, loss), fresh, budget
        self._checked = self._warned = self._scored = False

    def due(self, step: Any) -> bool:
        """Whether a step is one of those to measure at: 0, `every`, 2 `every`, ..."""
        return int(step) % self.every == 0

    def measure(self, params: PyTree, batch: tuple[Any, Any] | Samples, key: PRNGKeyArray) -> dict[str, float]:
        """Measures a network on a batch.

        **Arguments:**

        - `params`: the parameters, or anything that contains them, such as an Equinox module.
        - `batch`: inputs and targets of the current task, best the same number each time: an accuracy needs few
            samples, a rank is at most their number.
        - `key`: for the probes and the choice of samples. Use the same key each time: then the same probe is used, and
            changes come from the network.

        **Returns:**

        A dictionary of floats with the names of [`plastax_diagnostics.PlasticityReport.scalars`][]: `loss`,
        `hessian/epsilon_rank` (with `_lower` and `_upper`), `hessian/largest` (the sharpness),
        `layers/<name>/effective_rank`, `layers/<name>/dead`, `layers/<name>/dormant`, `weight_norm`, `gradient_norm`
        and more; with `fresh`, also `plasticity` (with `_lower`, and `_upper` unless it is infinite). `valid` is 1.0 if
        all other numbers are there, and 0.0 if some are left out because they are NaN or infinite. Mistakes in the
        arguments raise at the first call.
        """
        check_key(key)
        samples = as_pairs(batch)
        check_not_traced((params, samples, key), "Monitor.measure", "use Monitor.traced inside")
        if not self._checked:
            self._check(params)
            self._checked = self._check_loss(params, samples)
        numbers = self.scalars(_compiled(self._task, self._settings, params, samples, key))
        if self._fresh is None or not numbers["valid"]:
            return numbers
        return numbers | self._score(params, samples, key, self._fresh)

    def _score(self, params: PyTree, samples: Samples, key: PRNGKeyArray, fresh: Callable) -> dict[str, float]:
        """The score, on the samples that a report uses for it. It is left out if there is none."""
        keys, (model, loss) = report_keys(key), self._functions
        chosen = draw_trial(draw(samples, self._settings.samples, keys.samples), CHEAP.trial_samples, keys.trial)
        # Without a score: new networks do not learn either. Once there was one, nothing may stop the run.
        expected = (ValueError, FloatingPointError) if self._scored else NotApplicableError
        try:
            found = plasticity_score(model, loss, params, chosen, self._budget, fresh=fresh)
        except expected as error:
            self._warn(f"the score ({error})")
            return {"valid": 0.0}
        self._scored = True
        return score_numbers(found)

    def _check_loss(self, params: PyTree, samples: Samples) -> bool:
        """Raises for a loss that is not a mean, as the threshold of the budget and chunks require.

        Returns whether that could be checked: it cannot if the network has diverged.
        """
        if self._task.loss.is_mean:
            return True
        objective, arrays = _objective_of(self._task, params)
        return check_mean(objective, arrays, samples, "the step budget is about the mean loss")

    def _check(self, params: PyTree) -> None:
        if self._fresh is not None and not all(map(eqx.is_array, jax.tree.leaves(params))):
            raise ValueError(
                "a monitor with `fresh` takes a pytree of arrays: pass the arrays of "
                "eqx.partition(network, eqx.is_array), and a model that combines them with the rest"
            )

    def traced(self, params: PyTree, batch: tuple[Any, Any] | Samples, key: PRNGKeyArray) -> Measured:
        """The device's part of `measure` as a pure function, for use inside `jax.jit`, `jax.vmap` and `jax.lax.scan`.

        **Arguments:**

        - `params`, `batch`, `key`: as in `measure`. A loss that is a function is checked on made-up outputs and
            targets: a sum is an error, as in `measure`, but a mask or weights in it are not detected.

        **Returns:**

        A [`plastax_diagnostics.Measured`][], to be passed to `scalars` outside of the program.
        """
        samples = as_pairs(batch)
        self._check_loss(params, samples)
        return _measured(self._task, self._settings, params, samples, key)

    def scalars(self, measured: Measured, budget: StepBudget | None = None) -> dict[str, float]:
        """The numbers of a measurement, as `measure` returns them.

        **Arguments:**

        - `measured`: the result of `traced`. Of a vmapped or scanned program, one entry at a time:
            `jax.tree.map(lambda leaf: leaf[i], measured)`.
        - `budget`: another one than that of the monitor, such as one with the learning rate of that entry.
        """
        measured, eps = jax.device_get(measured), self.eps if budget is None else budget.threshold
        found = {
            "loss": measured.loss,
            "eps": eps,
            "weight_norm": measured.weight_norm,
            "gradient_norm": measured.gradient_norm,
        }
        for name, value in measured.layers.items():
            # No unit with a NaN is dead: its layer would look healthy.
            rank = measured.layers[f"{name.rpartition('/')[0]}/effective_rank"]
            found[f"layers/{name}"] = value if math.isfinite(rank) else math.nan
        broken = [name for name, value in found.items() if not math.isfinite(value)]
        try:
            found |= numbers_of("hessian/", CurvatureSummary.of(_spectrum(measured), eps))
        except (FloatingPointError, ValueError) as error:  # Not finite, or not symmetric as far as its rounding goes.
            broken.append(f"the Hessian ({error})")
        if broken:
            self._warn(", ".join(broken))
        numbers = {name: float(value) for name, value in found.items() if math.isfinite(value)}
        return {"valid": 0.0 if broken else 1.0} | numbers

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("the monitor leaves out what it could not measure, and `valid` is 0: %s", what)


class _Task(eqx.Module):
    """What is measured. The arrays of the functions are leaves, so that they are not constants of the program."""

    model: Callable
    loss: OutputLoss
    features: Callable | None


class _Settings(NamedTuple):
    """How it is measured."""

    where: Callable | None
    samples: int
    order: int
    probes: int
    dormant_threshold: float


class _OfArrays(eqx.Module):
    """A model as a function of its floating point arrays."""

    model: Callable
    others: PyTree

    def __call__(self, arrays: PyTree, inputs: Any) -> Any:
        return self.model(eqx.combine(arrays, self.others), inputs)


def _objective_of(task: _Task, params: PyTree) -> tuple[TaskLoss, PyTree]:
    """The loss as a function of the floating point arrays, and these."""
    arrays, others = eqx.partition(params, eqx.is_inexact_array)
    return TaskLoss(_OfArrays(task.model, others), task.loss), arrays


def _measured(task: _Task, settings: _Settings, params: PyTree, samples: Samples, key: PRNGKeyArray) -> Measured:
    # The keys of a plasticity report, so that the same key gives the same numbers.
    keys = report_keys(key)
    samples = draw(samples, settings.samples, keys.samples)
    objective, arrays = _objective_of(task, params)
    operator = hessian(objective, arrays, samples, where=settings.where)
    size, dtype = operator.in_size(), operator.dtype
    with precision(dtype, operator):
        loss, gradient = value_and_gradient(operator)
        starts = [jax.random.normal(each, (size,), dtype) for each in jax.random.split(keys.hessian, settings.probes)]
        found = traced_coefficients(operator, starts, min(settings.order, size))
        weights = optax.tree.norm(operator.selection())
    inputs = samples.data[0]
    layers = {} if task.features is None else unit_scalars(task.features(params, inputs), settings.dormant_threshold)
    return Measured(loss, weights, optax.tree.norm(gradient), layers, found, jnp.asarray(size, jnp.int32))


_compiled = eqx.filter_jit(_measured)
"""One program for all monitors of the same functions and settings."""


def _spectrum(measured: Measured) -> Spectrum:
    dtype, size = measured.lanczos[0].diagonal.dtype, int(measured.size)
    measures = tuple(finish(each, size, dtype, 1.0) for each in measured.lanczos)
    return Spectrum(measures, size, False, float(np.finfo(dtype).eps))
