"""All transformations on four devices, with an explicit mesh and inside `shard_map`. Prints their names."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P
from transform_cases import CASES, KEY, MINIBATCHES, extra_args, gradients_of, make_params


STEPS = MINIBATCHES[:2]


def some_steps(transform, params, minibatches):
    """Without a scan: inside of `shard_map` its carry would have to vary over the devices from the start."""
    state = transform.init(params)
    for inputs in minibatches:
        updates, state = transform.update(gradients_of(params), state, params, **extra_args(params, inputs))
        params = optax.apply_updates(params, updates)
    return params


def main():
    mesh = jax.make_mesh((4,), ("data",))
    sharded = jax.device_put(STEPS, jax.NamedSharding(mesh, P(None, "data", None)))
    params = make_params(KEY)
    transforms = {name: case.make() for name, case in CASES.items()}

    def all_of_them(params, minibatches):
        return {name: some_steps(transform, params, minibatches) for name, transform in transforms.items()}

    expected = jax.jit(all_of_them)(params, STEPS)

    # Explicit axes: the batch is sharded, the parameters are replicated.
    with jax.set_mesh(mesh):
        replicated = jax.device_put(params, jax.NamedSharding(mesh, P()))
        explicit = jax.jit(all_of_them)(replicated, sharded)

    # Gathered features and inputs are the same on all devices, so the parameters stay the same (`P()`).
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(None, "data", None)), out_specs=P())
    def gathered(params, minibatches):
        return all_of_them(params, jax.lax.all_gather(minibatches, "data", axis=1, tiled=True, to="invarying"))

    # Each device by itself, with a quarter of the batch: its parameters are its own. Only the types are checked.
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(None, "data", None)), out_specs=P("data"))
    def alone(params, minibatches):
        mine = all_of_them(params, jnp.concatenate([minibatches] * 4, axis=1))
        return jax.tree.map(lambda leaf: leaf[None], mine)

    inside = jax.jit(gathered)(params, sharded)
    jax.eval_shape(alone, params, sharded)
    for name in CASES:
        for other in (explicit[name], inside[name]):
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), other, expected[name])
        print(name)


if __name__ == "__main__":
    main()
