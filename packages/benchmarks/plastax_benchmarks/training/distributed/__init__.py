"""A run with several processes, each of which trains its own share of the members."""
