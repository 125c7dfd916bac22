"""The base class of operators made from the outputs of a model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from .applicable import check_forward_mode, check_outputs
from .base import CurvatureOperator, check_params
from .function import as_function, check_model, static_function
from .losses import LossLike, OutputLoss, TaskLoss, as_loss
from .mean import check_mean
from .precision import cast_floats, precision, working_dtype
from .samples import Samples, as_samples, placed, replicate


REDUCTIONS = ("mean", "sum")


class ModelOperator(CurvatureOperator):
    """An operator made from a model, its inputs and a loss of its outputs. The samples are `(inputs, targets)`.

    `outputs` is the shape of one sample's outputs.
    """

    model: Callable
    loss: OutputLoss
    outputs: tuple[int, ...] = eqx.field(static=True)
    reduction: str = eqx.field(static=True)

    @property
    def scale(self) -> float:
        """The factor of sums over samples."""
        return 1.0 / self.samples.size if self.reduction == "mean" else 1.0

    def outputs_of(self, model: Callable, params: PyTree, inputs: PyTree) -> tuple[Callable, PyTree]:
        """The outputs as a function of the selected parameters, and the selected parameters."""
        selection = params if self.where is None else self.where(params)
        return lambda selection: model(self.replaced(params, selection), inputs), selection


def as_pairs(data: Any) -> Samples:
    """Samples of inputs and targets. Raises for data that is not a pair of them."""
    pair = data.data if isinstance(data, Samples) else data
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
        raise ValueError(f"`data` must be a pair (inputs, targets), got {type(pair).__name__}")
    samples = as_samples(data)
    return samples.of(tuple(pair))


def model_operator(
    kind: type[ModelOperator],
    model: Callable,
    loss: LossLike | OutputLoss,
    params: PyTree,
    data: PyTree,
    *,
    where: Callable | None,
    dtype: Any,
    reduction: str,
) -> Any:
    """Checks the arguments and makes an operator of that kind."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"`reduction` must be one of {REDUCTIONS}, got {reduction!r}")
    check_model(model)
    check_params(params, where)
    where = None if where is None else static_function(where)
    samples, dtype = as_pairs(data), working_dtype(params, dtype)
    with precision(dtype, params, samples):
        params, samples = cast_floats(params, dtype), cast_floats(samples, dtype)
        model = cast_floats(as_function(model), dtype)
        output_loss: OutputLoss = cast_floats(as_loss(loss), dtype)
        outputs = jax.eval_shape(model, params, samples.first()[0])
        check_outputs(outputs)
        check_forward_mode(model, params, samples.first()[0])
        output_loss.check(outputs, samples.data[1])
        if not output_loss.is_mean:
            check_mean(TaskLoss(model, output_loss), params, samples, "its curvature is taken sample by sample")
        return kind(
            params=replicate(params, samples.mesh),
            where=where,
            samples=placed(samples),
            model=model,
            loss=output_loss,
            outputs=outputs.shape[1:],
            reduction=reduction,
        )
