"""The parts of `plastax bench diagnosis`."""
