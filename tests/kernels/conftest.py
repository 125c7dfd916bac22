"""The Triton tests need wheels that there are for Linux on x86-64 only; there, none of them is left out."""

import platform
import sys
from pathlib import Path

import jax


# For `import spectra` and other helpers beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

HAS_TRITON_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"
NEED_TRITON = ["assembler", "compiled", "devices", "interpreter", "lowering", "tuning"]


def pytest_addoption(parser):
    """`pytest tests/kernels --device`."""
    parser.addoption("--device", action="store_true", help="check the Triton kernels on this machine's GPU")


def pytest_configure(config):
    """On a GPU instead of the CPU that all other tests run on."""
    if config.getoption("--device", default=False):
        jax.config.update("jax_platforms", "cuda,cpu")


def pytest_ignore_collect(collection_path, config):
    """Tests without what they need, Triton or a GPU; and with `--device`, all other tests."""
    if collection_path.suffix != ".py":
        return None
    if config.getoption("--device", default=False):
        return True if collection_path.name != "test_device.py" else None
    missing = collection_path.stem.removeprefix("test_") in NEED_TRITON and not HAS_TRITON_WHEELS
    return True if missing or collection_path.name == "test_device.py" else None
