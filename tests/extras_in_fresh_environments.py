"""Installs each extra into a fresh virtual environment and runs what the documentation asks for: minutes for each.

    python tests/extras_in_fresh_environments.py                                    # core, benchmarks, rl, ray, tfds
    python tests/extras_in_fresh_environments.py --extras core --python python3.13  # another Python

This is the full form of `test_packaging.py`, which hides distributions instead of installing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging_support import MODULES, ROOT, documented_commands


def run(*command: object, **options) -> None:
    print("+", *command, flush=True)
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if result.returncode:
        sys.exit(f"{result.stdout}{result.stderr}\nfailed: {' '.join(map(str, command))}")


def check(python: str, extra: str, folder: Path) -> None:
    """Makes an environment in `folder`, installs, and runs all that belongs to `extra`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"env": environment, "cwd": folder.parent}
    run(python, "-m", "venv", folder, **options)
    scripts = folder / "bin"
    run(scripts / "pip", "install", "--quiet", f"{ROOT}[{extra}]" if extra else ROOT, **options)
    for package in ("plastax_kernels", "plastax", "plastax_diagnostics", "plastax_benchmarks"):
        if not list(folder.glob(f"lib/python*/site-packages/{package}/py.typed")):
            sys.exit(f"{package} was installed without py.typed")
    for module in MODULES[extra]:
        run(scripts / "python", "-c", f"import {module}", **options)
    for arguments in documented_commands(extra):
        run(scripts / "plastax", *arguments, **options)
    if not extra:
        for name in ("algorithm_1", "with_equinox"):
            run(scripts / "python", ROOT / "examples" / f"{name}.py", **options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--extras", nargs="+", default=["core", "benchmarks", "rl", "ray", "tfds"], help="core stands for none"
    )
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters to try")
    settings = parser.parse_args()
    for python in settings.python:
        for name in settings.extras:
            with tempfile.TemporaryDirectory() as temporary:
                check(python, "" if name == "core" else name, Path(temporary) / "environment")
            print(f"{python}, {name}: passed", flush=True)
