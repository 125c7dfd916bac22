"""Plain JAX: L2-ER for a dictionary of arrays, with batch size 1 and SGD. This is the quickstart of the README."""

import jax
import jax.numpy as jnp
import optax

import plastax


def features(params, inputs):
    first = jax.nn.relu(inputs @ params["first"])
    return {"first": first, "second": jax.nn.relu(first @ params["second"])}


def loss(params, inputs, targets):
    return jnp.mean((features(params, inputs)["second"] @ params["head"] - targets) ** 2)


minibatch = jax.ShapeDtypeStruct((1, 8), jnp.float32)
optimizer = optax.chain(
    plastax.l2_er(features, weight_decay=3e-3, er_weight=3, interval=100, window=100, inputs_like=minibatch),
    optax.sgd(0.03),
)


@jax.jit
def step(params, opt_state, inputs, targets):
    gradients = jax.grad(loss)(params, inputs, targets)
    updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=inputs)
    return optax.apply_updates(params, updates), opt_state


draw = jax.nn.initializers.he_normal()
shapes = {"first": (8, 32), "second": (32, 32), "head": (32, 1)}
params = {name: draw(jax.random.key(seed), shape) for seed, (name, shape) in enumerate(shapes.items())}
opt_state = optimizer.init(params)
inputs = jax.random.normal(jax.random.key(3), (1000, 8))
targets = jnp.sin(inputs[:, :1])
for count in range(3001):
    if count % 1000 == 0:
        rank = plastax.effective_rank(features(params, inputs)["second"])
        print(f"step {count}: loss {loss(params, inputs, targets):.4f}, effective rank {rank:.1f}")
    row = count % 1000
    params, opt_state = step(params, opt_state, inputs[row : row + 1], targets[row : row + 1])
