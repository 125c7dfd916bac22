"""A monitor left on in a Flax training loop, with its curves in Weights & Biases.

`WANDB_MODE=offline` writes them to the disk. The labels are random and change every 200 steps.
"""

import flax.linen as nn
import jax
import optax
import wandb

import plastax_diagnostics as diagnostics


PER_TASK = 200


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        hidden = nn.relu(nn.Dense(32)(x))
        self.sow("intermediates", "hidden", hidden)
        return nn.Dense(4)(hidden)


def main(steps: int = 1000) -> dict[str, float]:
    network, inputs = Network(), jax.random.normal(jax.random.key(1), (64, 8))
    variables = {"params": network.init(jax.random.key(0), inputs)["params"]}
    optimizer = optax.sgd(0.3)
    opt_state = optimizer.init(variables)

    def loss(variables, labels):
        return optax.softmax_cross_entropy_with_integer_labels(network.apply(variables, inputs), labels).mean()

    @jax.jit
    def step(variables, opt_state, labels):
        updates, opt_state = optimizer.update(jax.grad(loss)(variables, labels), opt_state)
        return optax.apply_updates(variables, updates), opt_state

    def features(variables, inputs):
        sown = network.apply(variables, inputs, mutable=["intermediates"])[1]["intermediates"]
        return {"hidden": sown["hidden"][0]}

    monitor = diagnostics.Monitor(
        network.apply,
        "cross_entropy",
        diagnostics.StepBudget(learning_rate=0.3, steps=PER_TASK),
        features=features,
        where=lambda variables: variables["params"],
        every=100,
    )
    numbers = {}
    with wandb.init(project="monitor") as run:
        for number in range(steps):
            labels = jax.random.randint(jax.random.key(number // PER_TASK), (64,), 0, 4)
            if monitor.due(number):
                # One key for all measurements: the same random probe each time.
                numbers = monitor.measure(variables, (inputs, labels), jax.random.key(2))
                run.log(numbers, step=number)
            variables, opt_state = step(variables, opt_state, labels)
    print(f"{steps} steps, and {len(numbers)} curves")
    return numbers


if __name__ == "__main__":
    main()
