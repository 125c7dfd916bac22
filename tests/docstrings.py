"""The examples in docstrings: where they are, and how the tests run them."""

import inspect
import re
import textwrap
from pathlib import Path

import jax


ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("kernels", "packages") for path in (ROOT / folder).rglob("*.py"))


def examples(text):
    """The Python blocks of a text, without their indentation."""
    return [
        textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    ]


def example_of(documented):
    """The one example of a function or a class."""
    (block,) = examples(inspect.getdoc(documented) or "")
    return block


def run(block, where, **given):
    """Runs an example, and returns the names that it defines. `given` is what its text takes for granted."""
    scope = dict(given)
    # `optax.adam` is not made for strict promotion.
    with jax.numpy_dtype_promotion("standard"):
        exec(compile(block, str(where), "exec"), scope)
    return scope
