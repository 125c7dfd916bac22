"""L2-ER in a Flax NNX training loop with BatchNorm, Dropout and `nnx.Optimizer`.

`nnx.Optimizer.update` passes its extra arguments to the transformation. The running statistics of BatchNorm change
during training, so pass them as `model_state=`. A features function that closes over the model or its state would use
the statistics from when it was compiled, at every step.
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import plastax


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(32, 32, rngs=rngs)
        self.head = nnx.Linear(32, 2, rngs=rngs)

    def __call__(self, x):
        first = self.dropout(nnx.relu(self.norm(self.first(x))))
        second = nnx.relu(self.second(first))
        return self.head(second), {"first": first, "second": second}


# The structure of the model in evaluation mode: no dropout, and BatchNorm uses its running statistics.
structure = nnx.graphdef(nnx.view(Network(nnx.Rngs(0)), deterministic=True, use_running_average=True))


def features(params, inputs, model_state):
    return nnx.merge(structure, params, model_state)(inputs)[1]


@nnx.jit
def step(model, optimizer, inputs, targets):
    def loss(model):
        return jnp.mean((model(inputs)[0] - targets) ** 2)

    gradients = nnx.grad(loss)(model)
    model_state = nnx.state(model, nnx.Not(nnx.Param))
    optimizer.update(model, gradients, inputs=inputs, model_state=model_state)


def hidden_rank(model, inputs):
    params, model_state = nnx.state(model, nnx.Param, ...)
    return -plastax.effective_rank_loss(features(params, inputs, model_state))


def main(steps: int = 200, er_weight: float = 1e-2) -> tuple[float, float]:
    model = Network(nnx.Rngs(0))
    transformation = optax.chain(plastax.l2_er(features, weight_decay=1e-4, er_weight=er_weight), optax.adam(1e-3))
    optimizer = nnx.Optimizer(model, transformation, wrt=nnx.Param)

    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    targets = jnp.stack([jnp.sin(inputs[:, 0]), inputs[:, 1] * inputs[:, 2]], axis=1)
    before = hidden_rank(model, inputs)
    for _ in range(steps):
        step(model, optimizer, inputs, targets)
    after = hidden_rank(model, inputs)
    print(f"effective rank of the hidden layers: {before:.2f} before, {after:.2f} after {steps} steps")
    return float(before), float(after)


if __name__ == "__main__":
    main()
