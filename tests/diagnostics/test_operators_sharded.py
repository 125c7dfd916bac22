"""Samples spread over four devices, in chunks on each: the same numbers as on one."""

import os
import subprocess
import sys


PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
import plastax_diagnostics as diagnostics

jax.config.update("jax_numpy_dtype_promotion", "strict")
assert jax.device_count() == 4
mesh = jax.make_mesh((4,), ("samples",), axis_types=(jax.sharding.AxisType.Auto,))
keys = jax.random.split(jax.random.key(0), 4)
params = {"a": jax.random.normal(keys[0], (3, 5)), "b": jax.random.normal(keys[1], (5, 2))}
data = jax.random.normal(keys[2], (20, 3)), jax.random.randint(keys[3], (20,), 0, 2)

def model(params, inputs):
    return jnp.tanh(inputs @ params["a"]) @ params["b"]

def build(samples):
    return [
        diagnostics.hessian(diagnostics.task_loss(model, "cross_entropy"), params, samples),
        diagnostics.loss_weighted_gram(model, "cross_entropy", params, samples),
    ]

for spread, alone, probes in zip(build(diagnostics.Samples(data, chunk=2, mesh=mesh)), build(data), (2, 1)):
    assert len(jax.tree.leaves(spread.samples)[0].sharding.device_set) == 4
    settings = {"order": 6, "probes": probes, "exact": False}
    found, expected = (diagnostics.spectrum(each, keys[0], **settings) for each in (spread, alone))
    np.testing.assert_allclose(found.nodes, expected.nodes, atol=2e-5)
    np.testing.assert_allclose(found.weights, expected.weights, atol=2e-4)

try:
    few = jax.tree.map(lambda leaf: leaf[:18], data)
    diagnostics.hessian(diagnostics.task_loss(model, "cross_entropy"), params, diagnostics.Samples(few, mesh=mesh))
except ValueError as error:
    assert "18 samples" in str(error) and "4 devices" in str(error)
else:
    raise AssertionError("18 samples were spread over 4 devices")

def summed(outputs, targets):
    return jnp.sum(outputs**2)

try:
    diagnostics.hessian(diagnostics.task_loss(model, summed), params, diagnostics.Samples(data, mesh=mesh))
except ValueError as error:
    assert "not a mean over samples" in str(error)
else:
    raise AssertionError("a sum was spread over 4 devices")

budget = diagnostics.StepBudget(learning_rate=0.1, steps=10)
effort = diagnostics.Effort(order=3, probes=1, residual_order=3, samples=20, exact=False, dtype=None)
spread, alone = (
    diagnostics.plasticity_report(model, "cross_entropy", params, samples, budget, key=keys[0], effort=effort)
    for samples in (diagnostics.Samples(data, mesh=mesh), data)
)
found, expected = spread.scalars(), alone.scalars()
for name in ("loss", "hessian/largest", "gram/trace", "residual/predicted", "norms/a/gradient"):
    np.testing.assert_allclose(found[name], expected[name], rtol=1e-4)
print("same numbers")
"""


def test_four_devices_give_the_same_numbers_as_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.stdout.strip() == "same numbers", run.stderr
