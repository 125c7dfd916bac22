"""plastax keeps deep networks able to learn."""

from ._adam import adam as adam, scale_by_adam as scale_by_adam
from ._branch import every as every, run_if as run_if
from ._continual_backprop import continual_backprop as continual_backprop
from ._effective_rank import effective_rank as effective_rank, effective_rank_loss as effective_rank_loss
from ._layers import select_layers as select_layers
from ._redo import redo as redo
from ._units import Incoming as Incoming, Outgoing as Outgoing, Units as Units
