"""L2-ER in a Flax linen training loop with `TrainState`.

Flax's own `apply_gradients` does not pass extra arguments to the optimizer, and L2-ER needs the minibatch. The version
below does, in four lines. With BatchNorm, pass `model_state=state.batch_stats` too. Hidden features come out of `sow`.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

import plastax


class TrainState(train_state.TrainState):
    def apply_gradients(self, *, grads, **extra_args):
        updates, opt_state = self.tx.update(grads, self.opt_state, self.params, **extra_args)
        params = optax.apply_updates(self.params, updates)
        return self.replace(step=self.step + 1, params=params, opt_state=opt_state)


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        for layer in ("first", "second"):
            x = nn.relu(nn.Dense(32, name=layer)(x))
            self.sow("intermediates", f"hidden_{layer}", x)
        return nn.Dense(2, name="head")(x)


network = Network()


def features(params, inputs):
    _, collected = network.apply({"params": params}, inputs, mutable="intermediates")
    return collected["intermediates"]


@jax.jit
def step(state, inputs, targets):
    def loss(params):
        return jnp.mean((state.apply_fn({"params": params}, inputs) - targets) ** 2)

    return state.apply_gradients(grads=jax.grad(loss)(state.params), inputs=inputs)


def main(steps: int = 200, er_weight: float = 1e-2) -> tuple[float, float]:
    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    targets = jnp.stack([jnp.sin(inputs[:, 0]), inputs[:, 1] * inputs[:, 2]], axis=1)
    state = TrainState.create(
        apply_fn=network.apply,
        params=network.init(jax.random.key(0), inputs)["params"],
        tx=optax.chain(plastax.l2_er(features, weight_decay=1e-4, er_weight=er_weight), optax.adam(1e-3)),
    )
    before = -plastax.effective_rank_loss(features(state.params, inputs))
    for _ in range(steps):
        state = step(state, inputs, targets)
    after = -plastax.effective_rank_loss(features(state.params, inputs))
    print(f"effective rank of the hidden layers: {before:.2f} before, {after:.2f} after {steps} steps")
    return float(before), float(after)


if __name__ == "__main__":
    main()
