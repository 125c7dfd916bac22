"""The package itself: its version, and names that people expect in it."""

import importlib
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import plastax


def test_the_version_is_that_of_the_installed_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert plastax.__version__ == metadata.version("plastax") == project["version"]


def test_a_source_tree_that_is_not_installed_has_a_version(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patched:
        patched.setattr(metadata, "version", missing)
        assert importlib.reload(plastax).__version__ == "0+unknown"
    assert importlib.reload(plastax).__version__ == metadata.version("plastax")


@pytest.mark.parametrize("name", ["diagnostics", "kernels", "benchmarks"])
def test_packages_of_their_own_are_named(name):
    with pytest.raises(AttributeError, match=f"plastax has no attribute '{name}'.*import plastax_{name}$"):
        getattr(plastax, name)
    importlib.import_module(f"plastax_{name}")


def test_other_names_are_missing_as_always():
    with pytest.raises(AttributeError, match="module 'plastax' has no attribute 'l2_err'"):
        plastax.l2_err  # noqa: B018
    assert not hasattr(plastax, "__all__")
