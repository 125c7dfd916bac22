"""Continual backprop on a sequence of tasks: it wraps an optimizer, and replaces the least useful hidden units.

It needs the features of the training pass, which `loss` returns along with its value, and a description of the layer:
which arrays lead into its units and which lead out. Equinox stores kernels as [out, in].
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import plastax


class Network(eqx.Module):
    first: eqx.nn.Linear
    head: eqx.nn.Linear

    def __call__(self, x):
        hidden = jax.nn.relu(self.first(x))
        return self.head(hidden), {"hidden": hidden}


hidden_units = plastax.Units(
    features="hidden",
    incoming=(
        plastax.Incoming(lambda params: params.first.weight, axis=0),
        plastax.Incoming(lambda params: params.first.bias, axis=0, fill=0.0),
    ),
    outgoing=(plastax.Outgoing(lambda params: params.head.weight, axis=1, bias=lambda params: params.head.bias),),
)


def main(steps: int = 500, tasks: int = 3) -> tuple[list[float], int]:
    keys = jax.random.split(jax.random.key(0), 4)
    network = Network(eqx.nn.Linear(8, 32, key=keys[0]), eqx.nn.Linear(32, 1, key=keys[1]))
    params, static = eqx.partition(network, eqx.is_inexact_array)

    def loss(params, inputs, targets):
        outputs, features = jax.vmap(eqx.combine(params, static))(inputs)
        return jnp.mean((outputs - targets) ** 2), features

    # `plastax.resettable_adam` counts the steps of each unit, so that a new unit starts with a fresh bias correction.
    optimizer = plastax.continual_backprop(
        plastax.resettable_adam(1e-2), [hidden_units], replacement_rate=1e-3, maturity_threshold=50, key=keys[2]
    )

    @jax.jit
    def step(params, opt_state, inputs, targets):
        (value, features), gradients = jax.value_and_grad(loss, has_aux=True)(params, inputs, targets)
        updates, opt_state = optimizer.update(gradients, opt_state, params, features=features)
        return optax.apply_updates(params, updates), opt_state, value

    opt_state = optimizer.init(params)
    inputs = jax.random.normal(keys[3], (64, 8))
    losses = []
    for task in range(tasks):
        targets = jnp.sin(2.0 * inputs[:, task : task + 1])
        for _ in range(steps):
            params, opt_state, value = step(params, opt_state, inputs, targets)
        losses.append(float(value))
        print(f"loss at the end of task {task + 1}: {value:.4f}")
    replaced = int(jnp.sum(opt_state.layers[0].age < steps * tasks))
    print(f"{replaced} of the 32 hidden units were replaced at least once")
    return losses, replaced


if __name__ == "__main__":
    main()
