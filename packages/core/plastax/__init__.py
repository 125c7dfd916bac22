"""plastax keeps deep networks able to learn: regularizers for optax, models for Equinox."""

from importlib import metadata as _metadata

from . import models as models
from ._adam import ScaleByAdamState as ScaleByAdamState, adam as adam, scale_by_adam as scale_by_adam
from ._branch import every as every, run_if as run_if
from ._continual_backprop import (
    ContinualBackpropState as ContinualBackpropState,
    UnitStatistics as UnitStatistics,
    continual_backprop as continual_backprop,
)
from ._effective_rank import effective_rank as effective_rank, effective_rank_loss as effective_rank_loss
from ._effective_rank_step import effective_rank_step as effective_rank_step
from ._er_gradient import effective_rank_gradient as effective_rank_gradient
from ._kernels_in import Kernel as Kernel, role_by_shape_and_name as role_by_shape_and_name
from ._l2_er import add_effective_rank as add_effective_rank, l2_er as l2_er
from ._l2_init import L2InitState as L2InitState, l2_init as l2_init
from ._layers import select_layers as select_layers
from ._parseval import ParsevalState as ParsevalState, parseval as parseval
from ._redo import RedoState as RedoState, redo as redo
from ._shrink_and_perturb import (
    ShrinkAndPerturbState as ShrinkAndPerturbState,
    shrink_and_perturb as shrink_and_perturb,
)
from ._sketch import (
    EffectiveRankBounds as EffectiveRankBounds,
    effective_rank_bounds as effective_rank_bounds,
    sketched_effective_rank as sketched_effective_rank,
)
from ._spectral_penalty import SpectralPenaltyState as SpectralPenaltyState, spectral_penalty as spectral_penalty
from ._units import Incoming as Incoming, Outgoing as Outgoing, Units as Units
from ._wasserstein import WassersteinState as WassersteinState, wasserstein as wasserstein
from ._window import EffectiveRankState as EffectiveRankState, restart_windows as restart_windows


try:
    __version__ = _metadata.version("plastax")
except _metadata.PackageNotFoundError:
    # Run from a source tree that was not installed.
    __version__ = "0+unknown"
