"""Settings of runs: the paper's, and those for a laptop."""

from .choose import PRESETS as PRESETS, settings_for as settings_for
from .config import Settings as Settings
