"""The checks of the Triton path on a real GPU: `pytest tests/kernels --device`."""

import jax
import pytest
from checks import *  # noqa: F403 - the tests, to be collected here.


@pytest.fixture(scope="module", autouse=True)
def a_gpu_is_there():
    if jax.default_backend() != "gpu":
        pytest.fail(f"--device needs a GPU, but the default device is {jax.devices()[0]}")
