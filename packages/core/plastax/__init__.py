"""plastax keeps deep networks able to learn."""

from . import models as models
from ._branch import every as every, run_if as run_if
from ._effective_rank import effective_rank as effective_rank, effective_rank_loss as effective_rank_loss
from ._layers import select_layers as select_layers
from ._units import Incoming as Incoming, Outgoing as Outgoing, Units as Units
