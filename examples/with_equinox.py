"""L2-ER on an Equinox model: `eqx.partition` sets the parameters apart, and a function puts them together again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import plastax


def main(steps: int = 200) -> tuple[float, float]:
    model = plastax.models.MLP(8, 2, width=32, depth=2, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def features(params, inputs):
        _, hidden, _ = eqx.combine(params, static)(inputs)
        return hidden

    def loss(params, inputs, targets):
        outputs, _, _ = eqx.combine(params, static)(inputs)
        return jnp.mean((outputs - targets) ** 2)

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
