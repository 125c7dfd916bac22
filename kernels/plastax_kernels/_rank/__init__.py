"""Effective rank, by XLA and by Triton."""
