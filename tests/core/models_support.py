"""Cheap models for tests: weights from numpy, and programs compiled in a hurry."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def quick_jit(function):
    """`jax.jit` without LLVM's optimizations: the programs of the tests run for less time than they compile."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def quick_key(seed):
    """A key whose random numbers compile much faster than threefry's."""
    return jax.random.key(seed, impl="rbg")


def random_model(make, seed=0):
    """The model `make(key)` with weights from numpy, its biases and scales not zero and one (that hides mistakes)."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        values = rng.normal(size=leaf.shape)
        if leaf.ndim > 1:
            values *= np.sqrt(2 / np.prod(leaf.shape[:-1]))
        else:
            values = 0.2 * values + (1 if jax.tree_util.keystr(path).endswith("scale") else 0)
        return jnp.asarray(values.astype(np.float32))

    return jax.tree_util.tree_map_with_path(draw, eqx.filter_eval_shape(make, jax.random.key(0)))


def random_batch(shape, seed=100):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
