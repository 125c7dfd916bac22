"""Every kernel, compiled for GPUs that are not here, within the budget of registers and shared memory."""

import re
import tomllib
from pathlib import Path

import compiled
import jax
import jax.numpy as jnp
import pytest

import plastax_kernels
from plastax_kernels import launch


BUDGET = tomllib.loads((Path(plastax_kernels.__file__).parent / "budget.toml").read_text())


def shape(*axes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(axes, dtype)


def gram_launch(samples, width, masked):
    mask = shape(2, samples, dtype=bool) if masked else None
    (call,) = compiled.record_launches(launch.gram, shape(2, samples, width), mask)
    return call


def rank_launch(side):
    (call,) = compiled.record_launches(launch.rank_from_gram, shape(3, side, side), cut=1e-3, of="features")
    return call


def dense_launches(probes, inputs_move):
    tangents = shape(probes, 200, 78) if inputs_move else None
    layer = (shape(200, 78), tangents, shape(78, 100), shape(probes, 78, 100))
    outputs, biases = shape(200, 100), (shape(100), shape(probes, 100))
    forward = compiled.record_launches(launch.dense_relu_tangents, *layer, *biases, activation="relu")
    backward = compiled.record_launches(
        launch.dense_relu_tangents_backward, *layer, outputs, outputs, shape(probes, 200, 100), activation="relu"
    )
    return [*forward, *backward]


def launches():
    """Each kernel with each of its tile configurations, and what differs in a first layer and without a mask."""
    named = {
        "gram_of_samples": gram_launch(100, 999, masked=False),
        "gram_of_samples_masked": gram_launch(100, 999, masked=True),
        "gram_of_units": gram_launch(999, 100, masked=False),
        "gram_of_units_masked": gram_launch(999, 100, masked=True),
    }
    named |= {f"rank_from_gram_{side}": rank_launch(side) for side in launch.JACOBI_WARPS}
    for probes in launch.PROBE_GROUPS:
        forward, inputs_gradient, parameters_gradient = dense_launches(probes, inputs_move=True)
        named[f"dense_tangents_{probes}"] = forward
        named[f"dense_inputs_gradient_{probes}"] = inputs_gradient
        named[f"dense_parameters_gradient_{probes}"] = parameters_gradient
    forward, _, parameters_gradient = dense_launches(launch.PROBE_GROUPS[-1], inputs_move=False)
    return named | {"dense_tangents_first": forward, "dense_parameters_gradient_first": parameters_gradient}


LAUNCHES = launches()


def test_the_budget_lists_every_kernel_and_target():
    assert set(BUDGET) == {"spills", *LAUNCHES}
    assert all(set(targets) == set(compiled.TARGETS) for name, targets in BUDGET.items() if name != "spills")


@pytest.mark.parametrize("target", compiled.TARGETS)
@pytest.mark.parametrize("name", LAUNCHES)
def test_within_the_budget(name, target):
    assembly, needs = compiled.compile_launch(LAUNCHES[name], target)
    allowed = BUDGET[name][target]
    assert needs.spills <= BUDGET["spills"], needs
    assert needs.registers <= allowed["registers"], needs
    assert needs.shared <= allowed["shared"], needs
    # Products in plain float32: NVIDIA's matrix instructions would mean TF32 there, AMD's only where they say so.
    assert not re.search("xf32" if target.startswith("gfx") else "mma|tf32", assembly)
    assert "fma" in assembly
