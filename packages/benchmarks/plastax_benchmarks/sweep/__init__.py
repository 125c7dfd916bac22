"""Sweeps: many configurations of several methods, planned, run by an engine, and resumed."""
