"""The house rules: lint, format, types, layers."""

import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parent.parent
CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["basedpyright", "--pythonpath", sys.executable],
    "layers": ["lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_house_rule(name):
    program, *arguments = CHECKS[name]
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
