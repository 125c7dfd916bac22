"""Streams of tasks. `catalog` lists them without importing jax; `load_problem` creates one."""
