"""Settings of runs: the paper's, and those for a laptop."""

from ..config.choose import PRESETS as PRESETS, settings_for as settings_for
from ..config.run import Settings as Settings
