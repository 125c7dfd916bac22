"""Curvature as linear operators on parameter pytrees, or on samples x outputs."""

from ._base import CurvatureOperator as CurvatureOperator
from ._dense import dense as dense
from ._function import ApplyModel as ApplyModel, apply_model as apply_model
from ._ggn import GGN as GGN, ggn as ggn
from ._gram import Gram as Gram, gram as gram, loss_weighted_gram as loss_weighted_gram, model_outputs as model_outputs
from ._hessian import Hessian as Hessian, hessian as hessian
from ._losses import (
    CrossEntropy as CrossEntropy,
    MeanLoss as MeanLoss,
    OutputLoss as OutputLoss,
    SquaredError as SquaredError,
    as_loss as as_loss,
)
from ._precision import precision as precision
from ._residual_term import ResidualTerm as ResidualTerm, residual_term as residual_term
from ._task_loss import TaskLoss as TaskLoss, task_loss as task_loss
