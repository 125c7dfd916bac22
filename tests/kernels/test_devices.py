"""The operations on four devices, in a process of its own: the number of devices cannot be changed later."""

import os
import subprocess
import sys
from pathlib import Path


HERE = Path(__file__).parent


def test_four_devices():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    paths = [str(HERE), *filter(None, sys.path)]
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(paths)}
    # Without what xdist tells its workers, or the inner pytest takes itself for one of them.
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "devices/check_devices.py"]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
