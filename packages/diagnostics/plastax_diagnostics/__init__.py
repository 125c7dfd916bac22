"""Curvature, spectra and feature statistics: how much curvature a network has left, and whether it can still learn."""

from ._collapse.bounds import (
    CurvatureResidualBound as CurvatureResidualBound,
    curvature_residual_bound as curvature_residual_bound,
    gradient_lipschitz as gradient_lipschitz,
    l2_strength as l2_strength,
    lipschitz_bound as lipschitz_bound,
    output_curvature as output_curvature,
    task_shift as task_shift,
)
from ._collapse.budget import StepBudget as StepBudget
from ._collapse.condition import (
    NecessaryCondition as NecessaryCondition,
    necessary_condition as necessary_condition,
    required_fraction as required_fraction,
)
from ._collapse.gated_linear_kernel import gated_linear_kernel as gated_linear_kernel
from ._collapse.linear_regime import LinearRegime as LinearRegime
from ._collapse.linearized_training import (
    LinearizedTraining as LinearizedTraining,
    linearized_training as linearized_training,
)
from ._collapse.plasticity import (
    Plasticity as Plasticity,
    plasticity_score as plasticity_score,
)
from ._collapse.projectors import fast_slow_projectors as fast_slow_projectors
from ._collapse.residual import (
    Bracket as Bracket,
    ResidualMeasure as ResidualMeasure,
    initial_residual as initial_residual,
    refined_residual_measure as refined_residual_measure,
    residual_measure as residual_measure,
)
from ._collapse.trial_training import (
    TrialTraining as TrialTraining,
    trial_training as trial_training,
)
from ._features.norms import feature_norms as feature_norms, norms as norms
from ._features.ranks import (
    Ranks as Ranks,
    approximate_rank as approximate_rank,
    effective_ranks as effective_ranks,
    numerical_rank as numerical_rank,
    ranks as ranks,
    singular_values as singular_values,
    stable_rank as stable_rank,
)
from ._features.units import (
    always_active_units as always_active_units,
    dead_units as dead_units,
    dormant_scores as dormant_scores,
    dormant_units as dormant_units,
    saturated_units as saturated_units,
    unit_scalars as unit_scalars,
)
from ._kfac import kfac_error as kfac_error, kfac_factors as kfac_factors, kfac_layers as kfac_layers
from ._kfac_layer import (
    KFACError as KFACError,
    KFACFactors as KFACFactors,
    KFACLayer as KFACLayer,
    KFACSharedLayer as KFACSharedLayer,
)
from ._operators.base import CurvatureOperator as CurvatureOperator
from ._operators.curvature_residual import curvature_residual as curvature_residual
from ._operators.dense import dense as dense
from ._operators.function import ApplyModel as ApplyModel, apply_model as apply_model
from ._operators.ggn import ggn as ggn
from ._operators.hessian import hessian as hessian
from ._operators.losses import task_loss as task_loss
from ._operators.ntk import loss_weighted_gram as loss_weighted_gram, ntk as ntk
from ._operators.precondition import adam_scale as adam_scale, precondition as precondition
from ._operators.samples import Samples as Samples
from ._programs.dense_layers import DenseLayer as DenseLayer, dense_layers as dense_layers
from ._report.density_plot import (
    draw_density as draw_density,
    stretch_eigenvalue_axis as stretch_eigenvalue_axis,
)
from ._report.effort import CHEAP as CHEAP, FULL as FULL, Effort as Effort
from ._report.monitor import Measured as Measured, Monitor as Monitor
from ._report.report import plasticity_report as plasticity_report
from ._report.results import (
    CurvatureSummary as CurvatureSummary,
    LayerSummary as LayerSummary,
    ParameterSummary as ParameterSummary,
    PlasticityReport as PlasticityReport,
    ResidualSummary as ResidualSummary,
)
from ._spectrum.estimate import Estimate as Estimate
from ._spectrum.exact import exact_spectrum as exact_spectrum
from ._spectrum.exact_gram import ExactGram as ExactGram, exact_gram as exact_gram
from ._spectrum.lanczos import lanczos as lanczos
from ._spectrum.quadrature import Tridiagonal as Tridiagonal
from ._spectrum.result import Extremes as Extremes, Spectrum as Spectrum
from ._spectrum.spectrum import spectrum as spectrum
