"""L2-ER in an Equinox training loop, with a module of your own and Adam.

The module returns its hidden features along with its output. `eqx.partition` separates the parameters from the rest.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import plastax


class Network(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Linear(8, 32, key=keys[0])
        self.second = eqx.nn.Linear(32, 32, key=keys[1])
        self.head = eqx.nn.Linear(32, 2, key=keys[2])

    def __call__(self, x):
        first = jax.nn.relu(self.first(x))
        second = jax.nn.relu(self.second(first))
        return self.head(second), {"first": first, "second": second}


def main(steps: int = 200, er_weight: float = 1e-2) -> tuple[float, float]:
    params, static = eqx.partition(Network(jax.random.key(0)), eqx.is_inexact_array)

    def forward(params, inputs):
        return jax.vmap(eqx.combine(params, static))(inputs)

    def features(params, inputs):
        return forward(params, inputs)[1]

    def loss(params, inputs, targets):
        return jnp.mean((forward(params, inputs)[0] - targets) ** 2)

    optimizer = optax.chain(plastax.l2_er(features, weight_decay=1e-4, er_weight=er_weight), optax.adam(1e-3))

    @jax.jit
    def step(params, opt_state, inputs, targets):
        gradients = jax.grad(loss)(params, inputs, targets)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=inputs)
        return optax.apply_updates(params, updates), opt_state

    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    targets = jnp.stack([jnp.sin(inputs[:, 0]), inputs[:, 1] * inputs[:, 2]], axis=1)
    before = -plastax.effective_rank_loss(features(params, inputs))
    opt_state = optimizer.init(params)
    for _ in range(steps):
        params, opt_state = step(params, opt_state, inputs, targets)
    after = -plastax.effective_rank_loss(features(params, inputs))
    print(f"effective rank of the hidden layers: {before:.2f} before, {after:.2f} after {steps} steps")
    return float(before), float(after)


if __name__ == "__main__":
    main()
