"""Decompositions on CPU run on one thread, unless somebody has chosen otherwise."""

import jax
import jax.numpy as jnp
import pytest
import threadpoolctl

import plastax
import plastax_kernels
from plastax_kernels import _lapack_threads


@pytest.fixture(autouse=True)
def two_threads_that_nobody_chose(monkeypatch):
    for name in (*_lapack_threads.OPENBLAS_VARIABLES, _lapack_threads.THREADS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    if _lapack_threads._openblas() is None:
        pytest.skip("scipy has no OpenBLAS of its own here")
    plastax_kernels.set_lapack_threads(2)
    monkeypatch.setattr(_lapack_threads, "_chosen", False)
    yield
    plastax_kernels.set_lapack_threads(1)


def threads_after_a_trace():
    jax.clear_caches()
    jax.jit(lambda features: plastax.effective_rank(features)).trace(jnp.ones((3, 4)))
    return _lapack_threads.lapack_threads()


def openblas_of(package):
    (found,) = (
        library["num_threads"]
        for library in threadpoolctl.threadpool_info()
        if f"/{package}" in library["filepath"].replace("\\", "/").split("site-packages")[-1]
    )
    return found


def test_one_thread_for_scipy_alone():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert threads_after_a_trace() == 1
        assert openblas_of("scipy") == 1
        assert openblas_of("numpy") == 2


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"])
def test_the_variables_of_openblas_are_respected(monkeypatch, name):
    monkeypatch.setenv(name, "2")
    assert threads_after_a_trace() == 2


def test_the_variable_of_plastax(monkeypatch):
    monkeypatch.setenv("PLASTAX_LAPACK_THREADS", "default")
    assert threads_after_a_trace() == 2
    monkeypatch.setenv("PLASTAX_LAPACK_THREADS", "none")
    with pytest.raises(ValueError, match="PLASTAX_LAPACK_THREADS must be a positive number or 'default', got 'none'"):
        threads_after_a_trace()
    monkeypatch.setenv("PLASTAX_LAPACK_THREADS", "3")
    assert threads_after_a_trace() == 3


def test_a_call_of_the_function_has_the_last_word():
    assert plastax_kernels.set_lapack_threads(2)
    assert threads_after_a_trace() == 2
    with pytest.raises(ValueError, match="at least 1, got 0"):
        plastax_kernels.set_lapack_threads(0)


def test_the_sketch_is_protected_too():
    sketch = plastax.sketched_effective_rank
    jax.jit(lambda features: sketch(features, size=2, key=jax.random.key(0))).trace(jnp.ones((5, 4)))
    assert _lapack_threads.lapack_threads() == 1
