"""Training several seeds at once ends."""

import os
import subprocess
import sys
from pathlib import Path


def test_vmapped_training_with_effective_rank_does_not_hang():
    # In a process of its own: a deadlock inside a compiled program cannot be interrupted from Python.
    script = Path(__file__).with_name("vmapped_training.py")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "finished"
