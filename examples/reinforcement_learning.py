"""Continual backprop in reinforcement learning: an actor-critic on a ring of cells whose goal moves.

The agent observes its cell and steps left, right or not at all. At the goal it gets a reward of 1 and starts again
somewhere else. The goal is not observed and moves between tasks, so the agent has to learn again and again. The least
useful hidden units are replaced while it does. Environment and agent are one compiled program.
"""

import jax
import jax.numpy as jnp
import optax

import plastax


CELLS, WIDTH, AGENTS, STEPS = 12, 64, 16, 8
DISCOUNT = 0.9


def environment(key, cell, action, goal):
    """One step on the ring: the next cell and the reward."""
    cell = (cell + action - 1) % CELLS
    reward = (cell == goal).astype(jnp.float32)
    return jnp.where(cell == goal, jax.random.randint(key, (), 0, CELLS), cell), reward


def actor_critic(params, cells):
    """Logits of the three actions, the value, and the hidden features."""
    hidden = jax.nn.relu(jax.nn.one_hot(cells, CELLS) @ params["body"]["kernel"] + params["body"]["bias"])
    outputs = hidden @ params["head"]["kernel"] + params["head"]["bias"]
    return outputs[..., :3], outputs[..., 3], {"hidden": hidden}


def rollout(params, cells, goal, key):
    """A few steps of all agents: cells, actions and rewards [steps, agents], and the last cells."""

    def step(cells, key):
        act_key, *move_keys = jax.random.split(key, 1 + AGENTS)
        actions = jax.random.categorical(act_key, actor_critic(params, cells)[0])
        after, rewards = jax.vmap(environment, (0, 0, 0, None))(jnp.stack(move_keys), cells, actions, goal)
        return after, (cells, actions, rewards)

    last, seen = jax.lax.scan(step, cells, jax.random.split(key, STEPS))
    return last, seen


def loss(params, seen, last):
    """Policy gradient with one-step advantages, value error and an entropy bonus."""
    cells, actions, rewards = seen
    logits, values, features = actor_critic(params, jnp.concatenate([cells, last[None]]))
    # A new start is not the result of an action, so the value of the cell after a reward does not count.
    targets = jax.lax.stop_gradient(rewards + DISCOUNT * (1 - rewards) * values[1:])
    advantages = targets - values[:-1]
    log_policy = jax.nn.log_softmax(logits[:-1])
    chosen = jnp.take_along_axis(log_policy, actions[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)
    policy_loss = -jnp.mean(chosen * jax.lax.stop_gradient(advantages) + 0.05 * entropy)
    rows = {name: layer.reshape(-1, WIDTH) for name, layer in features.items()}
    return policy_loss + jnp.mean(advantages**2), rows


hidden_units = plastax.Units.dense("hidden", lambda params: params["body"], lambda params: params["head"])


def main(updates: int = 600, tasks: int = 4) -> tuple[list[float], int]:
    keys = jax.random.split(jax.random.key(0), 4)
    draw = jax.nn.initializers.he_normal()
    params = {
        "body": {"kernel": draw(keys[0], (CELLS, WIDTH)), "bias": jnp.zeros(WIDTH)},
        "head": {"kernel": 0.1 * draw(keys[1], (WIDTH, 4)), "bias": jnp.zeros(4)},
    }
    optimizer = plastax.continual_backprop(
        plastax.resettable_adam(3e-3), hidden_units, replacement_rate=1e-4, maturity_threshold=50, key=keys[2]
    )

    def update(carry, key, goal):
        params, opt_state, cells = carry
        cells, seen = rollout(params, cells, goal, key)
        gradients, features = jax.grad(loss, has_aux=True)(params, seen, cells)
        changes, opt_state = optimizer.update(gradients, opt_state, params, features=features)
        return (optax.apply_updates(params, changes), opt_state, cells), jnp.mean(seen[2])

    @jax.jit
    def train(carry, goal, key):
        return jax.lax.scan(lambda carry, key: update(carry, key, goal), carry, jax.random.split(key, updates))

    carry = params, optimizer.init(params), jnp.zeros(AGENTS, int)
    learned = []
    for task in range(tasks):
        goal = jnp.asarray(5 * task % CELLS)
        carry, rewards = train(carry, goal, jax.random.fold_in(keys[3], task))
        first, last = rewards[:20].mean(), rewards[-20:].mean()
        learned.append(float(last))
        print(f"goal {goal}: reward per step {first:.2f} in the first 20 updates, {last:.2f} in the last 20")
    replaced = int(carry[1].replaced.sum())
    print(f"{replaced} hidden units were replaced")
    return learned, replaced


if __name__ == "__main__":
    main()
