"""The kernels themselves: `@triton.jit` functions and nothing else.

Each is marked `@no_type_check`, because run-time type checkers would otherwise wrap functions that are never run as
Python but read as source and compiled.
"""
