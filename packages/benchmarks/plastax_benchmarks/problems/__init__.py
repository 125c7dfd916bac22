"""Streams of tasks. `catalog` names them without jax; `load_problem` makes one."""
