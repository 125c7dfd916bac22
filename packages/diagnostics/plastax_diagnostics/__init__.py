"""How much curvature a network has left, and whether it can still learn."""

from ._bounds import (
    ResidualBound as ResidualBound,
    gradient_lipschitz as gradient_lipschitz,
    l2_strength as l2_strength,
    lipschitz_bound as lipschitz_bound,
    output_curvature as output_curvature,
    residual_bound as residual_bound,
    task_shift as task_shift,
)
from ._condition import (
    NecessaryCondition as NecessaryCondition,
    necessary_condition as necessary_condition,
    required_fraction as required_fraction,
)
from ._dense_layers import DenseLayer as DenseLayer, dense_layers as dense_layers
from ._estimate import Estimate as Estimate
from ._exact import exact_spectrum as exact_spectrum
from ._kernel import gated_linear_kernel as gated_linear_kernel
from ._kfac import kfac_error as kfac_error, kfac_factors as kfac_factors, kfac_layers as kfac_layers
from ._kronecker import KFACError as KFACError, KFACFactors as KFACFactors, KFACLayer as KFACLayer
from ._lanczos import lanczos as lanczos
from ._norms import feature_norms as feature_norms, norms as norms
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
from ._plasticity_report import (
    CHEAP as CHEAP,
    FULL as FULL,
    ReportSettings as ReportSettings,
    plasticity_report as plasticity_report,
)
from ._probing import spectrum as spectrum
from ._projectors import fast_slow_projectors as fast_slow_projectors
from ._quadrature import Tridiagonal as Tridiagonal
from ._ranks import (
    Ranks as Ranks,
    approximate_rank as approximate_rank,
    effective_ranks as effective_ranks,
    numerical_rank as numerical_rank,
    ranks as ranks,
    singular_values as singular_values,
    stable_rank as stable_rank,
)
from ._report import (
    CurvatureSummary as CurvatureSummary,
    LayerSummary as LayerSummary,
    ParameterSummary as ParameterSummary,
    PlasticityReport as PlasticityReport,
    ResidualSummary as ResidualSummary,
)
from ._residual_measure import (
    Bracket as Bracket,
    ResidualMeasure as ResidualMeasure,
    initial_residual as initial_residual,
    refined_residual_measure as refined_residual_measure,
    residual_measure as residual_measure,
)
from ._spectrum import Extremes as Extremes, Spectrum as Spectrum
from ._threshold import fast_interval as fast_interval, fast_threshold as fast_threshold, is_fast as is_fast
from ._unit_scalars import unit_scalars as unit_scalars
from ._units import (
    always_active_units as always_active_units,
    dead_units as dead_units,
    dormant_scores as dormant_scores,
    dormant_units as dormant_units,
    saturated_units as saturated_units,
)
