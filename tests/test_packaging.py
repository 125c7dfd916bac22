"""The package as it is installed: each extra brings what its documented commands need."""

import ast
import json
import platform
import subprocess
import sys
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging_support import MODULES, PROJECT, ROOT, documented_commands, installed_with


PACKAGES = {
    "plastax_kernels": ROOT / "kernels/plastax_kernels",
    "plastax": ROOT / "packages/core/plastax",
    "plastax_diagnostics": ROOT / "packages/diagnostics/plastax_diagnostics",
    "plastax_benchmarks": ROOT / "packages/benchmarks/plastax_benchmarks",
}

LARGE = {"tfds": {"tensorflow-cpu", "tensorflow"}, "bench": {"torch"}}
"""Distributions of hundreds of MB, by extra."""


COMPARED = {"curvlinops": "curvlinops-for-pytorch", "pyhessian": "pyhessian", "torch": "torch"}
"""Modules that the extra `bench` brings, for comparisons alone. The tests do not install them."""

LOGGERS = {"tensorboardX", "wandb"}
"""Modules that the extra `loggers` brings. Brax brings the first one, too."""


@pytest.mark.parametrize("extra", MODULES, ids=lambda extra: extra or "core")
def test_an_extra_brings_what_its_documented_commands_need(extra):
    if extra == "gpu" and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("Triton is installed on Linux for x86-64 alone")
    commands, modules, distributions = documented_commands(extra), MODULES[extra], installed_with(extra)
    assert commands or not extra
    if extra in LARGE:
        # The tests do not install it. It must be among the requirements, and the rest must work.
        assert distributions & LARGE[extra]
        modules = [module for module in modules if module not in {"tensorflow", "torch"} or find_spec(module)]
    if extra == "bench":
        assert {"curvlinops-for-pytorch", "pyhessian"} <= distributions
    task = {"distributions": sorted(distributions), "modules": modules, "commands": commands}
    program = [sys.executable, str(Path(__file__).with_name("run_with_only.py")), json.dumps(task)]
    result = subprocess.run(program, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_every_extra_for_users_is_tried():
    """`all` is a sum of others, `dev` is what these tests run in, and `tests/test_site.py` needs `docs`."""
    assert set(MODULES) - {""} == set(PROJECT["optional-dependencies"]) - {"all", "dev", "docs"}


@pytest.mark.parametrize(
    ("package", "extra", "elsewhere"),
    [
        ("plastax_kernels", "", {"jax_triton", "triton"}),
        ("plastax", "", set()),
        ("plastax_diagnostics", "", {"matplotlib"}),
        ("plastax_benchmarks", "benchmarks", {"brax", "flax", "ray", *LOGGERS, *COMPARED}),
        ("plastax_benchmarks", "rl", {"ray", "wandb", *COMPARED}),
        ("plastax_benchmarks", "bench", {"brax", "ray", *LOGGERS}),
        ("plastax_benchmarks", "loggers", {"brax", "flax", "ray", *COMPARED}),
        ("plastax_benchmarks", "all", {"wandb", *COMPARED}),
    ],
)
def test_every_import_is_installed(package, extra, elsewhere):
    """Imports inside functions count too, which `--help` does not reach."""
    owners = {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}
    owners |= {module: {name} for module, name in COMPARED.items()}
    brought = installed_with(extra)
    missing = {
        module
        for module in imported_modules(PACKAGES[package]) - sys.stdlib_module_names - set(PACKAGES)
        if not owners.get(module, set()) & brought
    }
    assert missing == elsewhere


def test_the_metadata_names_what_a_user_looks_for():
    classifiers = set(PROJECT["classifiers"])
    assert PROJECT["authors"]
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= classifiers
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= classifiers
    assert PROJECT["urls"]["Paper"] in (ROOT / "README.md").read_text()


def test_type_checkers_may_read_every_package():
    assert [name for name, folder in PACKAGES.items() if not (folder / "py.typed").exists()] == []


def imported_modules(folder):
    """Top-level names of all absolute imports below `folder`."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).split(".")[0])
    return found
