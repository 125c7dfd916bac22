"""The examples run, and effective rank rises; so do the examples in docstrings."""

import importlib.util
import re
from pathlib import Path

import jax
import pytest

import plastax


ROOT = Path(__file__).parents[2]
CORE = sorted(Path(plastax.__file__).parent.rglob("*.py"))


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["with_equinox", "with_flax_linen", "with_flax_nnx", "algorithm_1"])
def test_effective_rank_rises_in_every_framework(name, capsys):
    before, after = load(name).main(steps=50)
    assert after > before
    assert "effective rank of the hidden layers" in capsys.readouterr().out


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_docstring_examples_run(path):
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)
    for block in blocks:
        indent = re.match(r" *", block).group()
        source = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
        with jax.numpy_dtype_promotion("standard"):
            exec(compile(source, str(path), "exec"), {})
