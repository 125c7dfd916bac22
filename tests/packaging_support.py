"""What each extra installs, and what has to work with it."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from plastax_benchmarks.cli import COMMANDS
from plastax_benchmarks.cli.bench import BENCHES


ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {
    "": ["plastax", "plastax.models", "plastax_diagnostics", "plastax_kernels"],
    "benchmarks": ["plastax_benchmarks.cli.demo", "plastax_benchmarks.report", "matplotlib.pyplot"],
    "tfds": ["tensorflow", "tensorflow_datasets", "plastax_benchmarks.data._prepare"],
    "rl": ["plastax_benchmarks.rl.ant", "plastax_benchmarks.rl.play", "brax.envs"],
    "ray": ["ray", "plastax_benchmarks.sweep.cluster"],
    "loggers": ["tensorboardX.record_writer", "wandb", "plastax_benchmarks.loggers.rows"],
    "bench": ["torch", "flax.linen", "plastax_benchmarks.bench.convolutions", "plastax_benchmarks.bench.spectra"],
    "gpu": ["jax_triton", "plastax_benchmarks.bench.cases", "plastax_benchmarks.bench.kernels"],
}
"""For each extra, modules that have to be importable. The empty name is the core."""

PAGES = {
    "": [],
    "benchmarks": ["README.md", "docs/*.md"],
    "rl": ["docs/slippery_ant.md"],
    "ray": ["docs/scaling.md"],
    "gpu": ["docs/kernels.md"],
}
"""For each extra, the pages whose commands need no more than that. The last extra to name a page counts."""


COMMANDS_OF = {
    "loggers": [["run", "permuted-mnist", "--log", "wandb", "--help"]],
    "tfds": [["data", "prepare", "--help"]],
    "bench": [["bench", "convolutions", "--help"], ["bench", "spectra", "--help"]],
}
"""Commands of extras that have no page of their own."""


def installed_with(extra: str) -> set[str]:
    """Names of the distributions that `pip install "plastax[extra]"` brings, as far as they are installed here."""
    seen: set[tuple[str, str]] = set()
    todo = [("plastax", ""), ("plastax", extra)]
    while todo:
        name, option = distribution = todo.pop()
        if distribution in seen:
            continue
        seen.add(distribution)
        for requirement in map(Requirement, _requirements(name, option)):
            if requirement.marker is None or requirement.marker.evaluate({"extra": option}):
                todo += [(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)]
    return {name for name, _ in seen}


def _requirements(name: str, option: str) -> list[str]:
    # pyproject.toml, because the installed metadata of an editable project may be older.
    if name == "plastax":
        return PROJECT["optional-dependencies"][option] if option else PROJECT["dependencies"]
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def documented_commands(extra: str) -> list[list[str]]:
    """Arguments of `plastax` that print the help of each command on the pages that ask for `extra`."""
    owners = {page: owner for owner, globs in PAGES.items() for glob in globs for page in ROOT.glob(glob)}
    text = "\n".join(page.read_text() for page, owner in owners.items() if owner == extra)
    found = set()
    for command, name in re.findall(r"\bplastax ([a-z]+)(?: ([a-z][a-z-]*))?", text):
        if (command == "bench" and name in BENCHES) or (command in ("run", "data") and name):
            found.add((command, name))
        elif command in COMMANDS and command not in ("bench", "run", "data"):
            found.add((command,))
    return [[*command, "--help"] for command in sorted(found)] + COMMANDS_OF.get(extra, [])
