"""Imports modules and runs commands of `plastax` as if only some of the installed distributions were there.

    python run_with_only.py '{"distributions": [...], "modules": [...], "commands": [[...], ...]}'

A fresh virtual environment for each extra would take minutes. `extras_in_fresh_environments.py` makes them.
"""

import importlib
import json
import sys
import sysconfig
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions

from packaging.utils import canonicalize_name


INSTALLED = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}


class Visible(PathFinder):
    """Finds what Python's own finder finds, except for modules and metadata of hidden distributions."""

    hidden: frozenset[str] = frozenset()
    distributions: frozenset[str] = frozenset()

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        """Nothing for a hidden module where it is installed. Other packages may have a copy of it, as ray has."""
        if path is None and fullname in cls.hidden:
            path = [folder for folder in sys.path if folder not in INSTALLED]
        return super().find_spec(fullname, path, target)

    @classmethod
    def find_distributions(cls, *arguments, **options):
        """Visible distributions: plugins announce themselves by their metadata."""
        for distribution in super().find_distributions(*arguments, **options):
            if canonicalize_name(distribution.name) in cls.distributions:
                yield distribution


def main(distributions, modules, commands):
    """Runs all of it and reports every failure."""
    Visible.hidden = frozenset(
        module
        for module, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & set(distributions)
    )
    Visible.distributions = frozenset(distributions)
    sys.meta_path[sys.meta_path.index(PathFinder)] = Visible
    for loaded in Visible.hidden & set(sys.modules):
        del sys.modules[loaded]

    failures = []
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            failures.append(f"import {module}: {error}")
    for arguments in commands:
        from plastax_benchmarks.cli import main as plastax

        sys.argv = ["plastax", *arguments]
        try:
            plastax()
        except SystemExit as stop:
            if stop.code not in (None, 0):
                failures.append(f"plastax {' '.join(arguments)}: {stop.code}")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
