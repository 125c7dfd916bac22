"""Spectra of a run's networks: `plastax spectrum`."""
