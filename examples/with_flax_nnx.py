"""L2-ER on a Flax nnx model: `nnx.split` gives its parameters as a pytree, `nnx.merge` puts it together again."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import plastax


class Network(nnx.Module):
    """Two hidden layers."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.second = nnx.Linear(32, 32, rngs=rngs)
        self.head = nnx.Linear(32, 2, rngs=rngs)

    def __call__(self, x):
        first = nnx.relu(self.first(x))
        second = nnx.relu(self.second(first))
        return self.head(second), {"first": first, "second": second}


def main(steps: int = 200) -> tuple[float, float]:
    graph, params = nnx.split(Network(nnx.Rngs(0)), nnx.Param)

    def features(params, inputs):
        return nnx.merge(graph, params)(inputs)[1]

    def loss(params, inputs, targets):
        return jnp.mean((nnx.merge(graph, params)(inputs)[0] - targets) ** 2)

    optimizer = optax.chain(plastax.l2_er(features, weight_decay=1e-3, er_weight=0.1), optax.sgd(1e-2))

    @jax.jit
    def step(params, state, inputs, targets):
        gradients = jax.grad(loss)(params, inputs, targets)
        updates, state = optimizer.update(gradients, state, params, inputs=inputs)
        return optax.apply_updates(params, updates), state

    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    targets = jnp.stack([jnp.sin(inputs[:, 0]), inputs[:, 1] * inputs[:, 2]], axis=1)
    before = -plastax.effective_rank_loss(features(params, inputs))
    state = optimizer.init(params)
    for _ in range(steps):
        params, state = step(params, state, inputs, targets)
    after = -plastax.effective_rank_loss(features(params, inputs))
    print(f"effective rank of the hidden layers: {before:.2f} at first, {after:.2f} after {steps} steps")
    return float(before), float(after)


if __name__ == "__main__":
    main()
