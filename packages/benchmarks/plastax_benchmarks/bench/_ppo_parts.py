"""The parts of one update of our PPO as programs of their own, to see where the time goes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..config import RunConfig
from ..rl.agent import METRIC_ROWS, Agent, AntSetup, features, measure
from ..rl.ant import brax_arithmetic
from ..rl.environment import Environment
from ..rl.normalizer import add_rows, normalize
from ..rl.policy import draw, policy_of, to_action
from ..rl.ppo import RolloutRows, learn, ppo_loss, shuffle, to_rows
from ..rl.rollout import Trajectory, advance, roll_out


SIMULATION, BRAX_SIMULATION = "simulation", "simulation by brax"
POLICY, ADVANTAGES, LEARNING, MEASUREMENTS = "policy", "advantages", "learning", "measurements"
SHUFFLE, GRADIENTS, OPTIMIZER = "learning: shuffle", "learning: gradients", "learning: optimizer"


def parts_of(config: RunConfig, ant: Environment, brax: Any, agent: Agent) -> dict[str, Callable[[], Any]]:
    """A program for each part of an update, on the data of a rollout of the agent.

    **Arguments:**

    - `config`: the settings.
    - `ant`: the environment.
    - `brax`: brax's own environment, wrapped for training by brax.
    - `agent`: one agent, which is not changed.
    """
    setup = AntSetup(config, ant)
    problem, optimizer = setup.problem, setup.optimizer(jax.random.key(0))
    frictions, key = jnp.ones(problem.num_steps), jax.random.key(0)
    _, trajectory = jax.jit(
        lambda agent: roll_out(problem, ant, agent.model, agent.normalizer, agent.episodes, key, frictions)
    )(agent)
    rows = jax.jit(lambda agent: to_rows(problem, agent.model, agent.normalizer, trajectory, key))(agent)
    actions = to_action(rows.samples, problem.actions).reshape(problem.num_steps, problem.num_envs, -1)

    def simulation(agent: Agent, actions):
        def step(episodes, inputs):
            action, friction = inputs
            return jax.vmap(lambda e, a: advance(ant, problem.episode_limit, e, a, friction))(episodes, action)

        return jax.lax.scan(step, agent.episodes, (actions, frictions))

    def brax_simulation(state, actions):
        def step(state, action):
            # Brax changes these dictionaries in place.
            state = brax.step(state.replace(metrics=dict(state.metrics), info=_copied(state.info)), action)
            return state, (state.obs, state.reward, state.done)

        with brax_arithmetic():
            return jax.lax.scan(step, state, actions)

    def policy(agent: Agent, trajectory: Trajectory):
        def act(key, observations):
            key, own = jax.random.split(key)
            noise = jax.random.normal(own, (problem.num_envs, ant.action_size))
            chosen = policy_of(agent.model, normalize(agent.normalizer, observations))
            return key, to_action(draw(chosen, noise), problem.actions)

        return jax.lax.scan(act, key, trajectory.observations)[1]

    def advantages(agent: Agent, trajectory: Trajectory):
        seen = trajectory.observations.reshape(problem.rows, -1)
        return to_rows(problem, agent.model, agent.normalizer, trajectory, key), add_rows(agent.normalizer, seen)

    def learning(agent: Agent, rows: RolloutRows):
        progress = jnp.zeros(()), jnp.ones(())
        return learn(problem, optimizer, agent.model, agent.opt_state, rows, key, progress)

    def shuffles(rows: RolloutRows):
        return jax.lax.map(lambda key: shuffle(problem, rows, key), jax.random.split(key, problem.update_epochs))

    def gradients(agent: Agent, rows: RolloutRows):
        def one(total, minibatch):
            found, _ = jax.grad(lambda model: ppo_loss(problem, model, minibatch), has_aux=True)(agent.model)
            return jax.tree.map(jnp.add, total, found), None

        # In their order: shuffling is a part of its own.
        minibatches = jax.tree.map(lambda x: x.reshape(problem.num_minibatches, -1, *x.shape[1:]), rows)

        def epoch(total, _):
            return jax.lax.scan(one, total, minibatches)[0], None

        nothing = jax.tree.map(jnp.zeros_like, agent.model)
        return jax.lax.scan(epoch, nothing, length=problem.update_epochs)[0]

    def optimizer_steps(agent: Agent, inputs, hidden):
        def one(carry, _):
            model, opt_state = carry
            with jax.numpy_dtype_promotion("standard"):
                # The model as a gradient: any numbers will do, but they must differ from step to step.
                changes, opt_state = optimizer.update(
                    model, opt_state, model, inputs=inputs, features=hidden, progress=jnp.zeros(())
                )
            return (jax.tree.map(jnp.add, model, changes), opt_state), None

        return jax.lax.scan(
            one, (agent.model, agent.opt_state), length=problem.update_epochs * problem.num_minibatches
        )[0]

    minibatch = rows.observations[: problem.minibatch_rows]
    with brax_arithmetic():
        # Brax's wrappers need keys of the old kind.
        start = jax.jit(brax.reset)(jax.random.split(jax.random.PRNGKey(0), problem.num_envs))
    return {
        SIMULATION: partial(jax.jit(simulation), agent, actions),
        BRAX_SIMULATION: partial(jax.jit(brax_simulation), start, actions),
        POLICY: partial(jax.jit(policy), agent, trajectory),
        ADVANTAGES: partial(jax.jit(advantages), agent, trajectory),
        LEARNING: partial(jax.jit(learning), agent, rows),
        SHUFFLE: partial(jax.jit(shuffles), rows),
        GRADIENTS: partial(jax.jit(gradients), agent, rows),
        OPTIMIZER: partial(jax.jit(optimizer_steps), agent, minibatch, features(agent.model, minibatch)),
        MEASUREMENTS: partial(jax.jit(measure), agent.model, rows.observations[:METRIC_ROWS]),
    }


def _copied(info: dict[str, Any]) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, dict) else value for name, value in info.items()}
