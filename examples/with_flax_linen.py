"""L2-ER on a Flax linen model: hidden features come out of `sow`."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import plastax


class Network(nn.Module):
    """Two hidden layers."""

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.relu(nn.Dense(32)(x))
            self.sow("intermediates", "hidden", x)
        return nn.Dense(2)(x)


def main(steps: int = 200) -> tuple[float, float]:
    network = Network()
    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    params = network.init(jax.random.key(0), inputs)["params"]

    def features(params, inputs):
        _, collected = network.apply({"params": params}, inputs, mutable="intermediates")
        return collected["intermediates"]

    def loss(params, inputs, targets):
        return jnp.mean((network.apply({"params": params}, inputs) - targets) ** 2)

    optimizer = optax.chain(plastax.l2_er(features, weight_decay=1e-3, er_weight=0.1), optax.sgd(1e-2))

    @jax.jit
    def step(params, state, inputs, targets):
        gradients = jax.grad(loss)(params, inputs, targets)
        updates, state = optimizer.update(gradients, state, params, inputs=inputs)
        return optax.apply_updates(params, updates), state

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
