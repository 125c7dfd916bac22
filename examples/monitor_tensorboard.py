"""A monitor left on in an Equinox training loop, with its curves in TensorBoard.

`tensorboard --logdir runs/monitor` shows them. The labels are random and change every 200 steps.
"""

import equinox as eqx
import jax
import optax
from tensorboardX import SummaryWriter

import plastax_diagnostics as diagnostics


PER_TASK = 200


class Network(eqx.Module):
    first: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.first, self.head = eqx.nn.Linear(8, 32, key=keys[0]), eqx.nn.Linear(32, 4, key=keys[1])

    def features(self, x):
        return {"first": jax.nn.relu(self.first(x))}

    def __call__(self, x):
        return self.head(self.features(x)["first"])


def main(steps: int = 1000, folder: str = "runs/monitor") -> dict[str, float]:
    network = Network(jax.random.key(0))
    optimizer = optax.sgd(0.3)
    opt_state = optimizer.init(eqx.filter(network, eqx.is_inexact_array))

    def loss(network, inputs, labels):
        return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(network)(inputs), labels).mean()

    @eqx.filter_jit
    def step(network, opt_state, inputs, labels):
        gradients = eqx.filter_grad(loss)(network, inputs, labels)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return eqx.apply_updates(network, updates), opt_state

    monitor = diagnostics.Monitor(
        lambda network, inputs: jax.vmap(network)(inputs),
        "cross_entropy",
        diagnostics.StepBudget(learning_rate=0.3, steps=PER_TASK),
        features=lambda network, inputs: jax.vmap(network.features)(inputs),
        every=100,
    )
    inputs, numbers = jax.random.normal(jax.random.key(1), (64, 8)), {}
    with SummaryWriter(folder) as writer:
        for number in range(steps):
            labels = jax.random.randint(jax.random.key(number // PER_TASK), (64,), 0, 4)
            if monitor.due(number):
                # One key for all measurements: the same random probe each time.
                numbers = monitor.measure(network, (inputs, labels), jax.random.key(2))
                for name, value in numbers.items():
                    writer.add_scalar(name, value, number)
            network, opt_state = step(network, opt_state, inputs, labels)
    print(f"{steps} steps, and {len(numbers)} curves in {folder}")
    return numbers


if __name__ == "__main__":
    main()
