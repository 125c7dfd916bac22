"""The plasticity report."""
