"""Which modules a program loads, in a Python of its own."""

import subprocess
import sys
from textwrap import dedent


def loaded_by(program, *modules):
    """Those of the modules that the program has loaded at its end."""
    code = f"{dedent(program)}\nimport sys\nprint('loaded:', *{set(modules)!r} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines()[-1].split()[1:])
