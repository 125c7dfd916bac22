"""How much curvature a network has left, and whether it can still learn."""

from ._operators import (
    CurvatureOperator as CurvatureOperator,
    apply_model as apply_model,
    dense as dense,
    ggn as ggn,
    gram as gram,
    hessian as hessian,
    loss_weighted_gram as loss_weighted_gram,
    model_outputs as model_outputs,
    residual_term as residual_term,
    task_loss as task_loss,
)
