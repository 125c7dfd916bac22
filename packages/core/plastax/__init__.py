"""plastax keeps deep networks able to learn: gradient transformations for optax, models for Equinox."""

from importlib import metadata as _metadata
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import models as models
from ._adapters import (
    Adapter as Adapter,
    adapter_features as adapter_features,
    low_rank_adapters as low_rank_adapters,
    with_adapters as with_adapters,
)
from ._branch import every as every, run_if as run_if
from ._effective_rank.loss import (
    effective_rank_gradient as effective_rank_gradient,
    effective_rank_loss as effective_rank_loss,
)
from ._effective_rank.project import projected_effective_rank as projected_effective_rank
from ._effective_rank.rank import effective_rank as effective_rank
from ._effective_rank.select import select_layers as select_layers
from ._effective_rank.sketch import (
    EffectiveRankBounds as EffectiveRankBounds,
    effective_rank_bounds as effective_rank_bounds,
    sketched_effective_rank as sketched_effective_rank,
)
from ._transforms.clip_weights import ClipWeightsState as ClipWeightsState, clip_weights as clip_weights
from ._transforms.effective_rank import add_effective_rank as add_effective_rank, l2_er as l2_er
from ._transforms.effective_rank_step import effective_rank_step as effective_rank_step
from ._transforms.hare_and_tortoise import (
    HareAndTortoiseState as HareAndTortoiseState,
    hare_and_tortoise as hare_and_tortoise,
)
from ._transforms.l2_init import L2InitState as L2InitState, l2_init as l2_init
from ._transforms.minibatch_window import EffectiveRankState as EffectiveRankState, restart_windows as restart_windows
from ._transforms.normalize_and_project import (
    NormalizeAndProjectState as NormalizeAndProjectState,
    normalize_and_project as normalize_and_project,
)
from ._transforms.parameter_roles import Kernel as Kernel, role_by_shape_and_name as role_by_shape_and_name
from ._transforms.parseval import ParsevalState as ParsevalState, parseval as parseval
from ._transforms.sequence_settings import sequence_settings as sequence_settings
from ._transforms.shrink_and_perturb import (
    ShrinkAndPerturbState as ShrinkAndPerturbState,
    shrink_and_perturb as shrink_and_perturb,
)
from ._transforms.spectral_penalty import (
    SpectralPenaltyState as SpectralPenaltyState,
    spectral_penalty as spectral_penalty,
)
from ._transforms.trac import TracState as TracState, trac as trac
from ._transforms.upgd import UPGDState as UPGDState, upgd as upgd
from ._transforms.wasserstein import WassersteinState as WassersteinState, wasserstein as wasserstein
from ._transforms.weight_decay import WeightDecayState as WeightDecayState, add_weight_decay as add_weight_decay
from ._transforms.while_rank_low import WhileRankLowState as WhileRankLowState, while_rank_low as while_rank_low
from ._units.continual_backprop import (
    ContinualBackpropState as ContinualBackpropState,
    UnitStatistics as UnitStatistics,
    continual_backprop as continual_backprop,
)
from ._units.description import Incoming as Incoming, Outgoing as Outgoing, Units as Units
from ._units.redo import RedoState as RedoState, redo as redo
from ._units.resettable_adam import (
    AxisCounts as AxisCounts,
    ScaleByResettableAdamState as ScaleByResettableAdamState,
    resettable_adam as resettable_adam,
    scale_by_resettable_adam as scale_by_resettable_adam,
)
from ._units.self_normalized_resets import (
    FiringTimes as FiringTimes,
    SelfNormalizedResetsState as SelfNormalizedResetsState,
    self_normalized_resets as self_normalized_resets,
)


try:
    __version__ = _metadata.version("plastax")
except _metadata.PackageNotFoundError:
    # Run from a source tree that was not installed.
    __version__ = "0+unknown"


if not _TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    def __getattr__(name):
        if name in ("diagnostics", "kernels", "benchmarks"):
            raise AttributeError(
                f"plastax has no attribute {name!r}: it is a package of its own, import plastax_{name}"
            )
        raise AttributeError(f"module 'plastax' has no attribute {name!r}")
