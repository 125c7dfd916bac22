"""How a residual is distributed over the spectrum of a Gram matrix, and how fast gradient descent reduces it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._operators.applicable import NotApplicableError
from .._operators.losses import CrossEntropy, LossLike, MeanLoss
from .._operators.model import ModelOperator, model_operator
from .._operators.ntk import Gram, model_outputs
from .._operators.precision import precision
from .._spectrum.lanczos import GUARD, lanczos
from .._spectrum.quadrature import Tridiagonal
from .budget import StepBudget


@dataclass(frozen=True)
class Bracket:
    """A number between two bounds, up to rounding, with a best guess.

    The bounds hold for the quadratic model on the samples that were used, not for other samples: a residual on part of
    a task shrinks faster than on the whole task.
    """

    value: float
    lower: float
    upper: float

    @property
    def width(self) -> float:
        """The distance between the bounds."""
        return self.upper - self.lower

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.lower:.3g}, {self.upper:.3g}]"


@dataclass(frozen=True)
class ResidualMeasure:
    r"""The spectral measure of a residual: how much of it lies along which eigenvalues of a Gram matrix.

    **Arguments:**

    - `tridiagonal`: from a Lanczos run that was started at the residual; `None` for a residual of zero.
    - `norm_squared`: of the residual.
    - `loss_scale`: the loss is `loss_scale / 2` times the squared residual: 1 for a sum over samples, one over their
        number for a mean.
    - `rounding`: the relative precision of the numbers that Lanczos ran in.
    """

    tridiagonal: Tridiagonal | None
    norm_squared: float
    loss_scale: float
    rounding: float

    @property
    def nodes(self) -> Float[np.ndarray, " order"]:
        """Eigenvalues as estimated by Lanczos, ascending. None are negative: rounding below zero is cut off."""
        return np.zeros(0) if self.tridiagonal is None else np.maximum(self.tridiagonal.quadrature()[0], 0.0)

    @property
    def weights(self) -> Float[np.ndarray, " order"]:
        """The fraction of the squared residual at each node."""
        return np.zeros(0) if self.tridiagonal is None else self.tridiagonal.quadrature()[1]

    @property
    def order(self) -> int:
        """The number of products with the Gram matrix that it took."""
        return len(self.nodes)

    @property
    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue with a nonzero residual component."""
        return float(self.nodes[-1]) if self.order else 0.0

    @property
    def loss(self) -> float:
        """Half the squared residual, on the scale of the loss."""
        return self.loss_scale * self.norm_squared / 2

    def fast_fraction(self, budget: StepBudget) -> Bracket:
        """The fraction of the squared residual in directions that converge within the step budget.

        The bracket is sharp for all measures that Lanczos cannot distinguish from this one. A residual of zero is fast.
        """
        start, end = budget.interval
        if self.tridiagonal is None:
            return Bracket(1.0, 1.0, 1.0)
        nodes, weights = self.nodes, self.weights
        guess = float(np.sum(weights[(nodes >= start) & (nodes <= end)]))
        slow_least, slow_most = self._mass(start, inclusive=False)
        above_most, above_least = (1 - mass for mass in self._mass(end, inclusive=True))
        lower = min(max(0.0, 1 - slow_most - above_most), 1.0)
        upper = max(min(1.0, 1 - slow_least - above_least), lower)
        return Bracket(min(max(guess, lower), upper), lower, upper)

    def predicted_residual(self, budget: StepBudget) -> Bracket:
        r"""The squared residual after the steps of a budget, over the squared residual now.

        That is the integral of $(1 - \eta\lambda)^{2K}$, exact for a model that is linear in its parameters. The
        function has positive even derivatives, so the Gauss rule bounds the integral from below, and the rule with
        further nodes at both ends of the spectrum (Gauss-Lobatto) from above. When steps overshoot ($\eta\lambda_{\max}
        > 1$), the upper bound is as accurate as the largest eigenvalue, which takes an order of about 5. 0 for a
        residual of zero.
        """
        if self.tridiagonal is None:
            return Bracket(0.0, 0.0, 0.0)
        nodes, weights = self.tridiagonal.quadrature()
        # Up to 1 / learning_rate, a longer interval than the measure needs costs nothing.
        margin = self._margin
        end = max(1 / budget.learning_rate, float(np.max(nodes + self.tridiagonal.errors())) + margin)
        start = min(0.0, float(nodes[0])) - 1e-12 * end
        wide_nodes, wide_weights = _lobatto(self.tridiagonal, start, end)
        shifts = (-margin, 0.0, margin)
        below = [_integrate(_decay(nodes + shift, budget), weights) for shift in shifts]
        above = [_integrate(_decay(wide_nodes + shift, budget), wide_weights) for shift in shifts]
        return Bracket(below[1], min(below), max(*below, *above))

    @property
    def _margin(self) -> float:
        # How far rounding can have moved an eigenvalue.
        return GUARD * self.rounding * self.largest_eigenvalue

    def _mass(self, point: float, *, inclusive: bool) -> tuple[float, float]:
        assert self.tridiagonal is not None
        least, _ = self.tridiagonal.mass_up_to(point - self._margin, inclusive=inclusive)
        _, most = self.tridiagonal.mass_up_to(point + self._margin, inclusive=inclusive)
        # Below zero there is nothing but rounding.
        return (0.0 if point - self._margin <= 0 else least), min(most, 1.0)


def residual_measure(
    gram: lx.AbstractLinearOperator, residual: Float[Array, "..."], order: int = 64
) -> ResidualMeasure:
    """The spectral measure of a residual with respect to a Gram matrix, by one Lanczos run that starts at the residual.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: inputs @ params
        params, inputs, targets = jnp.zeros((3, 1)), jnp.eye(3) * jnp.array([1.0, 0.5, 0.0]), jnp.ones((3, 1))
        gram = diagnostics.ntk(model, params, inputs, reduction="sum")
        measure = diagnostics.residual_measure(gram, model(params, inputs) - targets, order=3)
        budget = diagnostics.StepBudget(learning_rate=0.5, steps=100)
        measure.fast_fraction(budget)  # 2/3: the third sample gives no gradient
        measure.predicted_residual(budget)  # 1/3 of the squared residual stays
        ```

    **Arguments:**

    - `gram`: [`plastax_diagnostics.ntk`][] for squared error, [`plastax_diagnostics.loss_weighted_gram`][] in general.
        Its `reduction` must be that of the loss which is trained on.
    - `residual`: a vector that the Gram matrix acts on, see [`plastax_diagnostics.initial_residual`][].
    - `order`: the number of products with the Gram matrix, each as expensive as about two gradients. Clipped to the
        size of the Gram matrix.

    **Returns:**

    A [`plastax_diagnostics.ResidualMeasure`][].
    """
    if order < 1:
        raise ValueError(f"order must be at least 1, got {order}")
    norm = _norm(residual)
    if not math.isfinite(norm):
        raise ValueError("the residual holds NaN or infinity: check the outputs and targets")
    tridiagonal = lanczos(gram, residual, min(order, gram.in_size())) if norm > 0 else None
    rounding = float(jnp.finfo(jax.tree.leaves(gram.in_structure())[0].dtype).eps)
    return ResidualMeasure(tridiagonal, norm**2, float(getattr(gram, "scale", 1.0)), rounding)


def refined_residual_measure(
    gram: lx.AbstractLinearOperator,
    residual: Float[Array, "..."],
    budget: StepBudget,
    *,
    tolerance: float = 0.01,
    order: int = 16,
    max_order: int = 256,
) -> ResidualMeasure:
    """A residual measure whose order is doubled until the fast fraction and the predicted residual are known.

    !!! example

        ```python
        import jax.numpy as jnp
        import lineax as lx
        import plastax_diagnostics as diagnostics

        gram = lx.DiagonalLinearOperator(jnp.array([1.0, 1e-6]))
        budget = diagnostics.StepBudget(learning_rate=0.5, steps=100)
        measure = diagnostics.refined_residual_measure(gram, jnp.ones(2), budget)
        measure.fast_fraction(budget)  # 0.5
        ```

    **Arguments:**

    - `gram`, `residual`: as in [`plastax_diagnostics.residual_measure`][].
    - `budget`: the steps on the task.
    - `tolerance`: the largest acceptable width of both brackets.
    - `order`, `max_order`: the first and the last order to try. The last measure is returned even if its brackets are
        wider.

    **Returns:**

    A [`plastax_diagnostics.ResidualMeasure`][].
    """
    while True:
        measure = residual_measure(gram, residual, order)
        brackets = (measure.fast_fraction(budget), measure.predicted_residual(budget))
        # A prediction of more than 1 (divergence) is known well enough when it is known relative to itself.
        known = all(bracket.width <= tolerance * max(1.0, bracket.value) for bracket in brackets)
        complete = measure.tridiagonal is None or measure.tridiagonal.complete
        if known or complete or order >= min(max_order, gram.in_size()):
            return measure
        order = min(2 * order, max_order)


def initial_residual(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: PyTree,
    *,
    dtype: Any = None,
) -> Float[Array, "samples *outputs"]:
    r"""The residual that gradient descent on a loss starts from, in the coordinates of the loss-weighted Gram matrix.

    Outputs minus targets for squared error. For cross-entropy $e_0 = (p - y)/\sqrt{p}$: with
    $B = \mathrm{diag}(q)(I - q q^\top)$, $q = \sqrt{p}$, it has $B e_0 = p - y$, and gradient descent on the quadratic
    model of the loss at the initial outputs multiplies it by $I - \eta B^\top G B$ exactly. Another loss, convex in
    the outputs, is treated in the same way with a square root $B$ of its curvature.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, x: x @ params
        data = (jnp.eye(3), jnp.array([0, 1, 0]))
        diagnostics.initial_residual(model, "cross_entropy", jnp.zeros((3, 2)), data)[0]  # -0.71, 0.71
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`: as in [`plastax_diagnostics.loss_weighted_gram`][].
    - `dtype`: as in [`plastax_diagnostics.hessian`][]; the same as that of the Gram matrix.

    **Returns:**

    An array of the shape of the outputs.
    """
    return residual_of(model_operator(Gram, model, loss, params, data, where=None, dtype=dtype, reduction="mean"))


def residual_of(operator: ModelOperator) -> Float[Array, "samples *outputs"]:
    """The initial residual of the model and the loss of an operator."""
    with precision(operator.dtype, operator):
        if isinstance(operator.loss, MeanLoss):
            residual = _from_roots(operator.loss, model_outputs(operator), operator.samples.data[1])
        else:
            residual = _of_named_loss(operator)
        if not np.isfinite(np.asarray(residual)).all():
            raise NotApplicableError(
                f"the residual is not finite in {operator.dtype}: the outputs are not, "
                "or a wanted class has probability 0. Look at the outputs, or try dtype=float64"
            )
        return residual


@eqx.filter_jit
def _of_named_loss(operator):
    # One program: each operation by itself would be compiled, too.
    return operator.loss.residual(model_outputs(operator), operator.samples.data[1])


def _from_roots(loss, outputs, targets):
    gradient = np.asarray(loss.gradient(outputs, targets), np.float64).reshape(len(outputs), -1)
    roots = loss.roots(outputs, targets)
    residual = np.einsum("nab,nb->na", np.linalg.pinv(roots, rcond=1e-6), gradient)
    missed = np.abs(np.einsum("nab,nb->na", roots, residual) - gradient).max()
    if missed > 1e-3 * np.abs(gradient).max():
        raise NotApplicableError(
            "the loss has a slope where it has no curvature: its quadratic model has no lowest point, "
            "and there is no residual to follow"
        )
    return jnp.asarray(residual.reshape(outputs.shape), outputs.dtype)


def confident_mistakes(operator: ModelOperator, residual: Float[Array, "samples *outputs"]) -> float:
    r"""The fraction of the squared residual where the quadratic model of the loss is far too flat.

    Under cross-entropy, samples (or positions) whose class has a probability $p$ below 1 %: their squared residual is
    $1/p - 1$. For a loss that is a function, samples whose squared residual is as large and promises ten times more
    than the loss can fall, $\frac12 e^2 > 10\,\ell$. With binary cross-entropy of one logit that is the same.
    """
    squares = np.asarray(residual, np.float64) ** 2
    if isinstance(operator.loss, CrossEntropy):
        positions = math.prod(operator.outputs[:-1])
        by_place = squares.reshape(-1, operator.outputs[-1]).sum(axis=1)
        flat = positions * by_place > 99
    elif isinstance(operator.loss, MeanLoss):
        by_place = squares.reshape(len(squares), -1).sum(axis=1)
        with precision(operator.dtype, operator):
            losses = np.asarray(operator.loss.by_sample(model_outputs(operator), operator.samples.data[1]), np.float64)
        flat = (by_place > 99) & (by_place / 2 > 10 * np.abs(losses))
    else:
        return 0.0
    return float(by_place[flat].sum() / max(by_place.sum(), np.finfo(float).tiny))


def _norm(residual):
    return float(np.linalg.norm(np.asarray(residual, np.float64)))


def _decay(eigenvalues, budget):
    with np.errstate(over="ignore", divide="ignore"):
        return np.exp(2 * budget.steps * np.log(np.abs(1 - budget.learning_rate * np.maximum(eigenvalues, 0.0))))


def _integrate(values, weights):
    # A weight of zero contributes nothing, even where the function is infinite.
    kept = weights > 0
    return float(np.sum(weights[kept] * values[kept]))


def _lobatto(tridiagonal, start, end):
    nodes, weights = tridiagonal.quadrature()
    if tridiagonal.complete:
        return nodes, weights
    matrix = np.diag(tridiagonal.diagonal) + sum(np.diag(tridiagonal.off_diagonal, side) for side in (-1, 1))
    _, vectors = np.linalg.eigh(matrix)
    low, high = (float(np.sum(vectors[-1] ** 2 / (nodes - x))) for x in (start, end))
    edge = (end - start) / (low - high)
    size = len(nodes) + 1
    larger = np.zeros((size, size))
    larger[:-1, :-1] = matrix
    larger[-1, -2] = larger[-2, -1] = math.sqrt(edge)
    larger[-1, -1] = start + low * edge
    nodes, vectors = np.linalg.eigh(larger)
    return nodes, vectors[0] ** 2
