"""README and docs: what they show is there and runs."""

import re
from pathlib import Path

import jax
import pytest


ROOT = Path(__file__).parent.parent
PAPERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_links_and_pictures_are_there_and_nothing_is_left_to_fill_in(paper):
    text = paper.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (paper.parent / target).exists(), target
    assert not re.findall(r"^\s*[A-Z]+_[A-Z]+\s*$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("paper", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_examples_in_docs_run(paper):
    for block in re.findall(r"```python\n(.*?)```", paper.read_text(), flags=re.DOTALL):
        exec(compile(block, str(paper), "exec"), {})


def test_the_readmes_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    params, minibatch = jax.numpy.ones((3, 5)), jax.numpy.eye(4, 3)
    head, tail = example.split("...\n")
    scope = {"features": lambda params, inputs: jax.nn.relu(inputs @ params)}
    exec(head, scope)
    scope |= {"params": params, "gradients": params, "minibatch": minibatch}
    scope["opt_state"] = scope["optimizer"].init(params)
    exec(tail, scope)
    assert scope["updates"].shape == params.shape
