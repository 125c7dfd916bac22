"""Effective rank on samples that are spread over four devices, by explicit axes and in shard_map: as on one device."""

import os
import subprocess
import sys


PROGRAM = """
from functools import partial
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import PartitionSpec as P
import plastax

jax.config.update("jax_numpy_dtype_promotion", "strict")
mesh = jax.make_mesh((4,), ("data",))
assert mesh.axis_types == (jax.sharding.AxisType.Explicit,)
jax.set_mesh(mesh)

def spread(x, *axes):
    return jax.device_put(x, jax.NamedSharding(mesh, P(*axes)))

def spread_all(tree):
    return jax.tree.map(lambda leaf: spread(leaf, "data"), tree)

params = {"kernel": jax.random.normal(jax.random.key(0), (4, 6)), "bias": jnp.full(6, 0.1)}
batches = jax.random.normal(jax.random.key(1), (4, 8, 4))
gradients = jax.tree.map(jnp.cos, params)

def features(params, inputs):
    return {"hidden": jax.nn.relu(inputs @ params["kernel"] + params["bias"])}

def close(found, expected, name):
    # Sums in another order: some roundings of float32.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5, err_msg=name), found, expected)

sketch = partial(plastax.sketched_effective_rank, size=3, key=jax.random.key(2))
whole = features(params, batches[0])["hidden"]
rank_and_gradient = jax.jit(jax.value_and_grad(plastax.effective_rank))
value, gradient = rank_and_gradient(spread(whole, "data", None))
close((value, gradient), rank_and_gradient(whole), "effective rank")
assert jax.typeof(gradient).sharding.spec == P("data", None), jax.typeof(gradient)
masks = jnp.arange(8) < 5
close(jax.jit(plastax.effective_rank)(spread(whole, "data", None), mask=spread(masks, "data")),
      plastax.effective_rank(whole, mask=masks), "mask")

# Seeds that are spread stay spread.
seeds = features(params, batches)["hidden"]
value, gradient = jax.jit(jax.vmap(jax.value_and_grad(plastax.effective_rank)))(spread(seeds, "data", None, None))
close((value, gradient), jax.vmap(jax.value_and_grad(plastax.effective_rank))(seeds), "seeds")
assert jax.typeof(gradient).sharding.spec == P("data", None, None)

window = dict(interval=2, window=2, inputs_like=jax.ShapeDtypeStruct((8, 4), jnp.float32))
TRANSFORMS = {
    "l2_er": plastax.l2_er(features, weight_decay=0.1, er_weight=0.2),
    "sketch": plastax.add_effective_rank(features, 0.2, interval=2, rank=sketch),
    "window": plastax.add_effective_rank(features, 0.2, **window),
    "step": plastax.effective_rank_step(features, 0.2, steps=2, **window),
}

def run(transform, batches):
    state = transform.init(params)
    update = jax.jit(transform.update)
    for i in range(2):
        updates, state = update(gradients, state, params, inputs=batches[i])
    return updates, optax.tree.get(state, "effective_rank")

expected = {name: run(transform, batches) for name, transform in TRANSFORMS.items()}
for name, transform in TRANSFORMS.items():
    close(run(transform, spread(batches, None, "data", None)), expected[name], name)

# In shard_map, each device has samples of its own, and the state one of them: gradients of replicated parameters are
# sums over devices, as in jax.grad, and the effective rank is the mean over devices.
transform = plastax.add_effective_rank(features, 0.2, interval=2)

def scanned(params, batches):
    def step(state, batch):
        updates, state = transform.update(jax.tree.map(jnp.cos, params), state, params, inputs=batch)
        return state, updates
    return jax.lax.scan(step, transform.init(params), batches)

state, updates = jax.jit(jax.shard_map(scanned, in_specs=(P(), P(None, "data")), out_specs=P()))(
    params, spread(batches[:2], None, "data"))

def summed_loss(params):
    parts = batches[1].reshape(4, 2, 4)
    return sum(plastax.effective_rank_loss(features(params, part)) for part in parts)

value, gradient = jax.jit(jax.value_and_grad(summed_loss))(params)
close(jax.tree.map(lambda leaf: leaf[1], updates),
      jax.tree.map(lambda g, e: g + 0.2 * e, gradients, gradient), "shard_map")
close(optax.tree.get(state, "effective_rank"), -value / 4, "rank in shard_map")

# Seeds on devices of their own: parameters and states vary.
def seed(params, batch):
    transform = plastax.effective_rank_step(features, 0.2, interval=2, steps=2)
    params = jax.tree.map(lambda leaf: leaf[0], params)
    state = transform.init(params)
    for _ in range(2):
        updates, state = transform.update(params, state, params, inputs=batch[0])
    return jax.tree.map(lambda leaf: leaf[None], (updates, optax.tree.get(state, "effective_rank")))

many = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf, 3 * leaf, 4 * leaf]), params)
found = jax.jit(jax.shard_map(seed, in_specs=P("data"), out_specs=P("data")))(spread_all(many), spread(batches, "data"))
last = jax.jit(seed)(jax.tree.map(lambda leaf: leaf[3:], many), batches[3:])
close(jax.tree.map(lambda leaf: np.asarray(leaf)[3:], found), last, "seeds in shard_map")

# A branch whose results vary over devices on one side only.
branch = jax.shard_map(
    lambda x: plastax.run_if(jnp.array(True), lambda x: x, lambda x: jnp.zeros(2), x),
    in_specs=P("data"), out_specs=P("data")
)
np.testing.assert_array_equal(jax.jit(branch)(spread(jnp.arange(8.0), "data")), jnp.arange(8.0))
print("same numbers")
"""


def test_four_devices_give_the_same_numbers_as_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.stdout.strip() == "same numbers", run.stderr
