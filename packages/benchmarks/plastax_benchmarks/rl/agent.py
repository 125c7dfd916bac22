"""An agent in training: its network, optimizer and episodes, and the program that trains it for a window of updates."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray

import plastax
import plastax_diagnostics as diagnostics
from plastax.models import ActorCritic

from ..config import RunConfig
from ..methods import Method, NetworkView
from ..problems.catalog import SlipperyAntSettings
from .environment import Environment
from .friction import friction_at
from .normalizer import Normalizer, add_rows, new_normalizer
from .plan import AntPlan, plan_of
from .ppo import LossParts, RolloutRows, learn, to_rows
from .rollout import Episode, EpisodeSums, begin, episode_sums, roll_out


METRIC_ROWS = 2048
"""Dead units and effective rank are measured on at most this many rows of a rollout."""

RENEWAL = 0x4E455753
"""Folded into an agent's key to draw a new network, so that rollouts do not depend on it."""


class Agent(NamedTuple):
    """Everything that changes in the training of one seed. `step` counts steps of the environment."""

    model: ActorCritic
    opt_state: optax.OptState
    normalizer: Normalizer
    episodes: Episode
    key: PRNGKeyArray
    step: Int[Array, ""]


EARLIER_AGENT = {
    Agent: {
        "model": "model",
        "optimizer": "opt_state",
        "normaliser": "normalizer",
        "episodes": "episodes",
        "key": "key",
        "step": "step",
    }
}
"""The fields of an agent as earlier versions named them in checkpoints."""


class WindowResult(NamedTuple):
    """The measurements of a window of updates.

    - `losses`: the parts of the loss, for each update.
    - `sums`: sums over all episodes and steps.
    - `friction`: the friction at the last step.
    - `dead`, `effective_rank`: of actor and critic at the end, on rows of the last rollout.
    """

    losses: LossParts
    sums: EpisodeSums
    friction: Float[Array, ""]
    dead: dict[str, Int[Array, ""]]
    effective_rank: dict[str, Float[Array, ""]]


@dataclass(frozen=True)
class AntSetup:
    """The constants of a run: the settings, the environment, and how to build networks and optimizers."""

    config: RunConfig
    environment: Environment

    @cached_property
    def plan(self) -> AntPlan:
        """The windows of the run."""
        return plan_of(self.config)

    @property
    def problem(self) -> SlipperyAntSettings:
        """The settings of environment and PPO."""
        return self.plan.problem

    def network(self, key: PRNGKeyArray) -> Any:
        """A new network, with the options of the method."""
        config, environment = self.config, self.environment
        options = config.method.network_options
        return config.network.make((environment.observation_size,), environment.action_size, options, key)

    def optimizer(self, key: PRNGKeyArray) -> optax.GradientTransformationExtraArgs:
        """Clipping, then the method's optimizer, then its effective-rank step if it has one.

        **Arguments:**

        - `key`: a random key for methods that need one. `init` stores it in the state.
        """
        config, method = self.config, self.config.method
        # Units and layers only depend on the structure, so an abstract network is enough.
        structure = eqx.filter_eval_shape(self.network, jax.random.key(0))
        view = NetworkView(
            features=features,
            rank_layers=structure.rank_layers,
            minibatch=jax.ShapeDtypeStruct(
                (self.problem.minibatch_rows, self.environment.observation_size), jnp.float32
            ),
            units=structure.resettable_units,
            unit_init=jax.nn.initializers.lecun_uniform(),
        )
        parts = []
        if config.optimizer.max_grad_norm is not None:
            parts.append(optax.clip_by_global_norm(config.optimizer.max_grad_norm))
        base = config.optimizer.make(resets_units=method.replaces_units)
        parts.append(method.optimizer(base, view, key))
        if method.rank_step is not None:
            rate, interval, window, steps = method.rank_step
            parts.append(
                plastax.effective_rank_step(
                    features,
                    rate,
                    interval=interval,
                    window=window,
                    steps=steps,
                    inputs_like=view.minibatch,
                    layers=view.rank_layers,
                )
            )
        return optax.chain(*parts)


def features(model: ActorCritic, observations: Float[Array, "rows observation"], model_state: None = None):
    """The hidden features of actor and critic. The network has no state."""
    del model_state
    return model(observations)[1]


def init_agent(setup: AntSetup, seed: Integer[Array, ""] | int) -> Agent:
    """A new agent for one seed."""
    problem, environment = setup.problem, setup.environment
    model_key, optimizer_key, env_key, key = jax.random.split(jax.random.key(seed), 4)
    model = setup.network(model_key)
    step = jnp.zeros((), jnp.int32)
    friction = friction_at(problem, problem.schedule(seed), step)
    episodes = jax.vmap(lambda key: begin(environment, key, friction))(jax.random.split(env_key, problem.num_envs))
    return Agent(
        model=model,
        opt_state=setup.optimizer(optimizer_key).init(model),
        normalizer=new_normalizer(environment.observation_size),
        episodes=episodes,
        key=key,
        step=step,
    )


def collect(
    setup: AntSetup, agent: Agent, key: PRNGKeyArray, frictions: Float[Array, " time"]
) -> tuple[Episode, RolloutRows, EpisodeSums, Float[Array, "time envs observation"]]:
    """Runs a rollout at given frictions. Returns the episodes after it, its rows, its sums and its raw observations."""
    rollout_key, noise_key = jax.random.split(key)
    episodes, trajectory = roll_out(
        setup.problem, setup.environment, agent.model, agent.normalizer, agent.episodes, rollout_key, frictions
    )
    rows = to_rows(setup.problem, agent.model, agent.normalizer, trajectory, noise_key)
    return episodes, rows, episode_sums(trajectory.outcome), trajectory.observations


def friction_changed(problem: SlipperyAntSettings, step: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether friction has changed since the start of the previous rollout, or changes at this one's first step."""
    every = problem.change_every
    return (step > 0) & (step // every > (step - problem.rows) // every)


def start_task(
    setup: AntSetup, model: ActorCritic, opt_state: optax.OptState, key: PRNGKeyArray
) -> tuple[ActorCritic, optax.OptState]:
    """Network and optimizer state at the start of a new friction, which is a new task for the method.

    The windows of effective-rank transformations are emptied, and the method prepares its state. A method that renews
    the network gets a new one, with a new optimizer state.
    """
    if setup.config.method.renews_network:
        model_key, optimizer_key = jax.random.split(jax.random.fold_in(key, RENEWAL))
        model = setup.network(model_key)
        return model, setup.optimizer(optimizer_key).init(model)  # pyright: ignore[reportArgumentType]
    if has_windows(opt_state):
        opt_state = plastax.restart_windows(opt_state)
    return model, setup.config.method.begin_task(opt_state)


def acts_at_tasks(method: Method, opt_state: optax.OptState) -> bool:
    """Whether `start_task` changes anything, so that other methods need no branch for it."""
    return method.renews_network or type(method).begin_task is not Method.begin_task or has_windows(opt_state)


def has_windows(opt_state: optax.OptState) -> bool:
    """Whether an optimizer state contains the window of an effective-rank transformation."""

    def is_window(node):
        return isinstance(node, plastax.EffectiveRankState)

    return any(is_window(node) for node in jax.tree.leaves(opt_state, is_leaf=is_window))


def update(
    setup: AntSetup,
    optimizer: optax.GradientTransformationExtraArgs,
    agent: Agent,
    schedule: Integer[Array, ""],
) -> tuple[Agent, RolloutRows, LossParts, EpisodeSums, Float[Array, ""]]:
    """One rollout, and the epochs of training on it."""
    problem = setup.problem
    if problem.friction is None and acts_at_tasks(setup.config.method, agent.opt_state):
        # The new task starts with the first update whose rollout only has the new friction.
        model, opt_state = jax.lax.cond(
            friction_changed(problem, agent.step),
            lambda model, opt_state: start_task(setup, model, opt_state, agent.key),
            lambda model, opt_state: (model, opt_state),
            agent.model,
            agent.opt_state,
        )
        agent = agent._replace(model=model, opt_state=opt_state)
    key, rollout_key, learn_key = jax.random.split(agent.key, 3)
    steps = agent.step + problem.num_envs * jnp.arange(problem.num_steps, dtype=jnp.int32)
    frictions = friction_at(problem, schedule, steps)
    episodes, rows, sums, observations = collect(setup, agent, rollout_key, frictions)
    step = agent.step + problem.rows
    progress = (_share(agent.step, setup.plan.steps), _share(step, setup.plan.steps))
    model, opt_state, losses = learn(problem, optimizer, agent.model, agent.opt_state, rows, learn_key, progress)
    normalizer = agent.normalizer
    if problem.normalize_observations:
        # Only after training: the rollout's log-probabilities are for observations with the old statistics.
        normalizer = add_rows(normalizer, observations.reshape(problem.rows, -1))
    return Agent(model, opt_state, normalizer, episodes, key, step), rows, losses, sums, frictions[-1]


def train_window(setup: AntSetup, agent: Agent, schedule: Integer[Array, ""]) -> tuple[Agent, WindowResult]:
    """A window of updates at the frictions of a schedule, with its measurements."""
    problem = setup.problem
    optimizer = setup.optimizer(jax.random.key(0))  # Keys are in the optimizer's state, so this one is not used.
    every = max(1, problem.rows // METRIC_ROWS)

    def one(carry, _):
        agent, rows, losses, sums, friction = update(setup, optimizer, carry[0], schedule)
        return (agent, rows.observations[::every][:METRIC_ROWS]), (losses, sums, friction)

    seen = jnp.zeros((min(problem.rows, METRIC_ROWS), setup.environment.observation_size))
    updates = setup.plan.measurement.log_every
    (agent, seen), (losses, sums, frictions) = jax.lax.scan(one, (agent, seen), length=updates)
    dead, effective_rank = measure(agent.model, seen)
    result = WindowResult(
        losses=losses,
        sums=jax.tree.map(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), sums),
        friction=frictions[-1],
        dead=dead,
        effective_rank=effective_rank,
    )
    return agent, result


def measure(
    model: ActorCritic, observations: Float[Array, "rows observation"]
) -> tuple[dict[str, Int[Array, ""]], dict[str, Float[Array, ""]]]:
    """The number of dead units and the effective rank of actor and critic."""
    _, hidden, _ = model(observations)
    dead = jax.tree.map(lambda dead: jnp.sum(dead.astype(jnp.int32)), diagnostics.dead_units(hidden))
    return dead, {name: plastax.effective_rank(rows) for name, rows in hidden.items()}


def _share(step: Int[Array, ""], steps: int) -> Float[Array, ""]:
    """The fraction of the run that is done."""
    return step.astype(jnp.float32) / steps
