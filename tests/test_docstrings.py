"""The examples in the docstrings of all packages run."""

import inspect
from pathlib import Path

import docstrings
import pytest

import plastax
import plastax_benchmarks
import plastax_diagnostics
import plastax_kernels
from plastax_benchmarks.runs import hold_interrupts, open_run


WITH_EXAMPLES = {
    str(path.relative_to(docstrings.ROOT)): path for path in docstrings.SOURCES if docstrings.examples(path.read_text())
}

# What an example leaves to its reader.
GIVEN = {
    "open_run": {
        "open_run": open_run,
        "hold_interrupts": hold_interrupts,
        "out": Path("run"),
        "state": {"task": 0},
        "train": lambda state, task: ({"task": task}, {"task": task}),
    },
}


# Lines that are not programs by themselves: they are compiled, not run.
FRAGMENTS = ("wandb.log(",)


def test_there_are_examples_in_every_package():
    folders = {part for name in WITH_EXAMPLES for part in Path(name).parts}
    assert folders >= {"plastax_kernels", "plastax", "plastax_diagnostics", "plastax_benchmarks"}


@pytest.mark.parametrize("package", [plastax, plastax_benchmarks, plastax_diagnostics, plastax_kernels])
def test_every_public_function_has_an_example(package):
    public = {name: value for name, value in vars(package).items() if not name.startswith("_") and callable(value)}
    functions = {name: value for name, value in public.items() if inspect.isfunction(inspect.unwrap(value))}
    assert [name for name, value in functions.items() if not docstrings.examples(inspect.getdoc(value) or "")] == []


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Some of them write files.
    for block in docstrings.examples(WITH_EXAMPLES[name].read_text()):
        if block.startswith(FRAGMENTS):
            compile(block, name, "exec")
            continue
        given = next((names for function, names in GIVEN.items() if f"{function}(" in block), {})
        docstrings.run(block, name, **given)
