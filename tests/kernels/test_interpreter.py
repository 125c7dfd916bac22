"""Every kernel in Triton's interpreter, in a process of its own: it cannot share one with the compiler."""

import os
import subprocess
import sys
from pathlib import Path


HERE = Path(__file__).parent


def test_interpreted_kernels_match_float64():
    paths = [str(HERE), *filter(None, sys.path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    # Without what xdist tells its workers, or the inner pytest takes itself for one of them.
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "interpreted/check_triton.py"]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
