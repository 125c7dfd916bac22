"""The paper's Algorithm 1 on plain tuples: weight decay and SGD at every step, an effective-rank step at every tenth.

Two tasks, one after the other; the effective-rank window is emptied before the second.
"""

import jax
import jax.numpy as jnp
import optax

import plastax


def hidden_layers(params, inputs):
    hidden = []
    for kernel, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ kernel + bias)
        hidden.append(inputs)
    return tuple(hidden)


def loss(params, inputs, targets):
    kernel, bias = params[-1]
    return jnp.mean((hidden_layers(params, inputs)[-1] @ kernel + bias - targets) ** 2)


def main(steps: int = 200) -> tuple[float, float]:
    sizes = (8, 32, 32, 2)
    keys = jax.random.split(jax.random.key(0), 3)
    draw = jax.nn.initializers.he_uniform()
    params = tuple(
        (draw(key, (before, after)), jnp.zeros(after))
        for key, before, after in zip(keys, sizes[:-1], sizes[1:], strict=True)
    )
    minibatch = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    optimizer = optax.chain(
        optax.add_decayed_weights(1e-3),
        optax.sgd(1e-2),
        plastax.effective_rank_step(hidden_layers, 1e-2, interval=10, window=10, inputs_like=minibatch),
    )

    @jax.jit
    def train(params, state, inputs, targets):
        def step(carry, batch):
            params, state = carry
            gradients = jax.grad(loss)(params, *batch)
            updates, state = optimizer.update(gradients, state, params, inputs=batch[0])
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), (inputs, targets))[0]

    inputs = jax.random.normal(jax.random.key(1), (steps, 4, 8))
    before = -plastax.effective_rank_loss(hidden_layers(params, inputs.reshape(-1, 8)))
    state = optimizer.init(params)
    for task in range(2):
        state = plastax.restart_windows(state)
        targets = jnp.stack([jnp.sin(inputs[..., task]), inputs[..., task + 1] ** 2], axis=-1)
        params, state = train(params, state, inputs, targets)
    after = -plastax.effective_rank_loss(hidden_layers(params, inputs.reshape(-1, 8)))
    print(f"effective rank of the hidden layers: {before:.2f} before, {after:.2f} after two tasks")
    return float(before), float(after)


if __name__ == "__main__":
    main()
