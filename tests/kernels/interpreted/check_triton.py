"""All checks of the Triton path, interpreted."""

import interpreter  # First: it puts the interpreter in the compiler's place.
import pytest
from checks import *  # noqa: F403 - the tests, to be collected here.


@pytest.fixture(autouse=True)
def pretend_to_have_a_gpu(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    interpreter.CALLS.clear()
    yield
    assert interpreter.CALLS  # A kernel ran.
