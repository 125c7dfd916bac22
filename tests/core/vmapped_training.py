"""Four seeds, three layers, effective rank at every hundredth step: where batched eigendecompositions hang.

Twenty calls with matrices of side 100: with fewer calls or smaller matrices the deadlock need not show.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

import plastax
from plastax_benchmarks.bench.interval import features, init, loss


def main():
    optimizer = optax.chain(
        plastax.l2_er(
            features,
            weight_decay=1e-3,
            er_weight=1e-3,
            interval=100,
            window=100,
            inputs_like=jax.ShapeDtypeStruct((1, 784), jnp.float32),
        ),
        optax.sgd(1e-2),
    )
    params = jax.vmap(partial(init, 100))(jax.random.split(jax.random.key(0), 4))
    inputs = jax.random.uniform(jax.random.key(1), (4, 100, 1, 784))
    labels = jax.random.randint(jax.random.key(2), (4, 100, 1), 0, 10)

    @jax.jit
    @jax.vmap
    def train(params, state, inputs, labels):
        def step(carry, batch):
            params, state = carry
            updates, state = optimizer.update(jax.grad(loss)(params, *batch), state, params, inputs=batch[0])
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), (inputs, labels))[0]

    state = jax.vmap(optimizer.init)(params)
    for _ in range(20):
        params, state = jax.block_until_ready(train(params, state, inputs, labels))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(params))
    print("finished")


if __name__ == "__main__":
    main()
