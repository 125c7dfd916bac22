"""Every kernel, compiled for GPUs that are not here, with the resources that the budget and the docs state.

`python tests/kernels/test_compiled.py` measures again, and writes both.
"""

import json
import re
from functools import cache
from pathlib import Path

import compiled
import jax
import jax.numpy as jnp
import pytest

from plastax_kernels._gram import launch as gram_launch
from plastax_kernels._rank import launch as rank_launch


BUDGET = Path(__file__).parent / "budget.json"
DOCS = Path(__file__).parents[2] / "docs" / "kernels.md"
# Registers may differ a little between builds of Triton.
SPARE_REGISTERS = 8


def shape(*axes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(axes, dtype)


def gram_call(samples, width, *, masked=False, wide=False):
    mask = shape(2, samples, dtype=bool) if masked else None
    (call,) = compiled.record_launches(gram_launch.gram, shape(2, samples, width), mask, wide=wide)
    return call


def launches():
    """Each kernel with each of its configurations; sides and strides are those of the benchmarks."""
    named = {
        "gram_100x1000": gram_call(100, 1000),
        "gram_1200x128_masked": gram_call(1200, 128, masked=True),
        "gram_99x999": gram_call(99, 999),
        "gram64_100x1000": gram_call(100, 1000, wide=True),
        "gram64_1200x128_masked": gram_call(1200, 128, masked=True, wide=True),
    }
    for side in rank_launch.PANELS:
        first, *others = compiled.record_launches(rank_launch.orthogonalize, shape(3, side, side))
        named[f"orthogonalize_{side}"] = first
        if others:
            named[f"orthogonalize_{side}_blocks"] = others[-1]
    return named


LAUNCHES = launches()


@cache
def measure(name, target):
    return compiled.compile_launch(LAUNCHES[name], target)


def budget():
    return json.loads(BUDGET.read_text())


def table(measured):
    lines = ["| kernel | warps | " + " | ".join(compiled.TARGETS) + " |", "|---|---|" + "---|" * len(compiled.TARGETS)]
    for name, targets in measured.items():
        warps = LAUNCHES[name][-1]["num_warps"]
        cells = (f"{needs['registers']} / {needs['shared'] / 1024:g}" for needs in targets.values())
        lines.append(f"| `{name}` | {warps} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_docs_have_the_measured_table():
    assert set(budget()) == set(LAUNCHES)
    assert table(budget()) in DOCS.read_text()


@pytest.mark.parametrize("target", compiled.TARGETS)
@pytest.mark.parametrize("name", LAUNCHES)
def test_within_the_budget(name, target):
    assembly, needs = measure(name, target)
    allowed = budget()[name][target]
    assert needs.spills == 0, needs
    assert needs.registers <= allowed["registers"] + SPARE_REGISTERS, needs
    assert needs.shared <= allowed["shared"], needs
    # Matrix instructions in float32 would mean TF32. In float64 they are exact, where the GPU has them.
    matrix_instructions = set(re.findall(r"mma\.sync\.\S+", assembly))
    assert all(".f64" in name for name in matrix_instructions)
    assert bool(matrix_instructions) == (name.startswith("gram64") and target != "sm_120")
    assert matrix_instructions or "fma" in assembly


def update_the_budget_and_the_docs():
    found = {name: {target: measure(name, target)[1] for target in compiled.TARGETS} for name in LAUNCHES}
    measured = {
        name: {target: {"registers": needs.registers, "shared": needs.shared} for target, needs in targets.items()}
        for name, targets in found.items()
    }
    lines = (f' "{name}": {json.dumps(targets)}' for name, targets in measured.items())
    BUDGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    old = re.search(r"\| kernel \| warps \|.*?\n\n", DOCS.read_text(), re.S)[0]
    DOCS.write_text(DOCS.read_text().replace(old, table(measured) + "\n\n"))


if __name__ == "__main__":
    update_the_budget_and_the_docs()
