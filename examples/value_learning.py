"""Value learning with resets: a DQN on a ring of cells whose goal moves, and ReDo for its dormant units.

The agent observes its cell and steps left, right or not at all. At the goal it gets a reward of 1 and starts somewhere
else, as it does now and then without a reward. The goal moves between tasks, and is not observed. Replay buffer, target
network, double Q-learning, exploration and optimizer are one compiled program.
"""

import jax
import jax.numpy as jnp
import optax

import plastax


CELLS, WIDTH, AGENTS, BUFFER, BATCH = 12, 64, 8, 2048, 64
DISCOUNT, EXPLORE, RESTART, TARGET_EVERY = 0.9, 0.1, 0.05, 50


def q_values(params, cells):
    """The values of the three actions, and the hidden features."""
    hidden = jax.nn.relu(jax.nn.one_hot(cells, CELLS) @ params["body"]["kernel"] + params["body"]["bias"])
    return hidden @ params["head"]["kernel"] + params["head"]["bias"], {"hidden": hidden}


def act(params, cells, goal, key):
    """One step of all agents: cell, action, reward and next cell, and where they continue."""
    random_key, choice_key, end_key, start_key = jax.random.split(key, 4)
    greedy = jnp.argmax(q_values(params, cells)[0], axis=-1)
    explored = jax.random.randint(choice_key, (AGENTS,), 0, 3)
    actions = jnp.where(jax.random.bernoulli(random_key, EXPLORE, (AGENTS,)), explored, greedy)
    after = (cells + actions - 1) % CELLS
    rewards = (after == goal).astype(jnp.float32)
    starts = jax.random.randint(start_key, (AGENTS,), 0, CELLS)
    ends = (after == goal) | jax.random.bernoulli(end_key, RESTART, (AGENTS,))
    return (cells, actions, rewards, after), jnp.where(ends, starts, after)


def loss(params, target, batch):
    """Double Q-learning: the network chooses the next action, and the target network values it."""
    cells, actions, rewards, after = batch
    values, features = q_values(params, cells)
    best = jnp.argmax(q_values(params, after)[0], axis=-1)
    following = jnp.take_along_axis(q_values(target, after)[0], best[:, None], axis=-1)[:, 0]
    # An episode ends at the goal.
    wanted = jax.lax.stop_gradient(rewards + DISCOUNT * (1 - rewards) * following)
    chosen = jnp.take_along_axis(values, actions[:, None], axis=-1)[:, 0]
    return jnp.mean(optax.huber_loss(chosen, wanted)), features


hidden_units = plastax.Units.dense("hidden", lambda params: params["body"], lambda params: params["head"])


def main(updates: int = 800, tasks: int = 4) -> tuple[list[float], int]:
    keys = jax.random.split(jax.random.key(0), 4)
    draw = jax.nn.initializers.he_normal()
    params = {
        "body": {"kernel": draw(keys[0], (CELLS, WIDTH)), "bias": jnp.zeros(WIDTH)},
        "head": {"kernel": 0.1 * draw(keys[1], (WIDTH, 3)), "bias": jnp.zeros(3)},
    }
    optimizer = plastax.redo(plastax.resettable_adam(3e-3), hidden_units, threshold=0.1, interval=100, key=keys[2])

    def update(carry, step, goal):
        params, target, opt_state, buffer, cells, key = carry
        key, act_key, batch_key = jax.random.split(key, 3)
        seen, cells = act(params, cells, goal, act_key)
        places = (step * AGENTS + jnp.arange(AGENTS)) % BUFFER
        buffer = jax.tree.map(lambda stored, new: stored.at[places].set(new), buffer, seen)
        filled = jnp.minimum((step + 1) * AGENTS, BUFFER)
        batch = jax.tree.map(lambda stored: stored[jax.random.randint(batch_key, (BATCH,), 0, filled)], buffer)
        gradients, features = jax.grad(loss, has_aux=True)(params, target, batch)
        changes, opt_state = optimizer.update(gradients, opt_state, params, features=features)
        params = optax.apply_updates(params, changes)
        target = optax.periodic_update(params, target, step, TARGET_EVERY)
        return (params, target, opt_state, buffer, cells, key), jnp.mean(seen[2])

    @jax.jit
    def train(carry, goal):
        # A new task starts with an empty buffer: its old rewards are for another goal.
        return jax.lax.scan(lambda carry, step: update(carry, step, goal), carry, jnp.arange(updates))

    empty = (jnp.zeros(BUFFER, int), jnp.zeros(BUFFER, int), jnp.zeros(BUFFER), jnp.zeros(BUFFER, int))
    carry = params, params, optimizer.init(params), empty, jnp.zeros(AGENTS, int), keys[3]
    learned = []
    for task in range(tasks):
        carry, rewards = train(carry, jnp.asarray(5 * task % CELLS))
        learned.append(float(jnp.mean(rewards[-updates // 4 :])))
        dormant = int(jnp.sum(jnp.all(q_values(carry[0], jnp.arange(CELLS))[1]["hidden"] == 0, axis=0)))
        print(f"task {task + 1}: reward per step {learned[-1]:.2f}, {dormant} dead units")
    replaced = int(sum(count.sum() for count in jax.tree.leaves(carry[2].replaced)))
    print(f"{replaced} hidden units were replaced")
    return learned, replaced


if __name__ == "__main__":
    main()
