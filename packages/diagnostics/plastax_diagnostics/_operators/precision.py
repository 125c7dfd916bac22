"""Float64 on request, in programs that are otherwise float32."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import PyTree


def is_float(leaf: Any) -> bool:
    """Whether a leaf is an array (or a number) of real floating point type."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def is_traced(leaf: Any) -> bool:
    """Whether a leaf is traced."""
    return isinstance(leaf, jax.core.Tracer)  # pyright: ignore[reportAttributeAccessIssue]


def in_trace() -> bool:
    """Whether a function is being traced: then closures may hold traced values, and programs do not return numbers."""
    return get_opaque_trace_state() != _outside_of_traces()


@cache
def _outside_of_traces() -> Any:
    # Each thread has its own traces, and a new one has none.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(get_opaque_trace_state).result()


def check_not_traced(tree: PyTree, name: str, instead: str | None = None) -> None:
    """Raises inside `jax.jit` and the like, where a function cannot make decisions on the host."""
    given = any(map(is_traced, jax.tree.leaves(tree)))
    if given or in_trace():
        raise ValueError(
            f"{name} {'got traced values' if given else 'was called in a function that is being traced'}, but it "
            "makes decisions on the host: call it outside of jax.jit, jax.vmap and "
            "jax.grad" + ("" if instead is None else f", or {instead}")
        )


def working_dtype(params: PyTree, dtype: Any) -> np.dtype:
    """The dtype that an operator computes in: the given one, or float32 or the wider type of the parameters."""
    if dtype is not None:
        wanted = np.dtype(dtype)
        if wanted.name not in ("float32", "float64"):
            raise ValueError(f"`dtype` must be float32 or float64 (or None for that of the parameters), got {wanted}")
        return wanted
    if any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(params) if is_float(leaf)):
        return np.dtype(np.float64)
    return np.dtype(np.float32)


@contextmanager
def precision(dtype: Any, *operands: PyTree) -> Iterator[None]:
    """Enables float64 inside the context, whatever the value of `jax_enable_x64`.

    That is not possible inside an outer trace: a batching or differentiation rule that runs after this context has
    closed would truncate to float32, so tracers among the operands are an error.
    """
    if np.dtype(dtype) != np.float64 or jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        yield
        return
    if any(map(is_traced, jax.tree.leaves(operands))):
        raise ValueError(
            "a float64 operator was used inside a jitted or transformed float32 program: "
            "call jax.config.update('jax_enable_x64', True) first, or use the operator outside of jit"
        )
    with jax.enable_x64(True):
        yield


def cast_floats(tree: PyTree, dtype: Any) -> PyTree:
    """Every array of floating point numbers in `dtype`; integers, and leaves that are not arrays, as they are."""
    leaves, structure = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) if is_float(leaf) or isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    changed = [i for i, leaf in enumerate(leaves) if is_float(leaf) and (leaf.dtype != dtype or leaf.weak_type)]
    if changed:
        # One program for all of them: otherwise every shape would be compiled by itself.
        for i, leaf in zip(changed, _cast([leaves[i] for i in changed], np.dtype(dtype)), strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


@partial(jax.jit, static_argnums=1)
def _cast(leaves, dtype):
    return [leaf.astype(dtype) for leaf in leaves]
