"""What a run is made of: the paper's tables as data, and the presets that are built on them."""
