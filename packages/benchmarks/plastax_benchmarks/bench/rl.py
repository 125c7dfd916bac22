"""Environment steps per second of our PPO and of brax's, on the same backend with the same number of environments, and
where our time goes.

Run with `plastax bench rl`. Both train an ant with networks of one hidden layer of 256 for actor and critic, with the
same rollouts, minibatches and epochs, standardized observations and squashed actions. Each of brax's epochs is
followed by a window of ours with the same number of steps, so that other work of the machine slows down both. The
first two of each do not count, to leave out compilation. Differences: brax recomputes advantages in every minibatch,
starts all episodes of an environment from its first state, and has one friction. Ours computes advantages once per
rollout, draws a new start for every episode, has a friction for each environment that may change at each step, and
measures dead units and effective ranks in every window.

Then the parts of an update are timed as programs of their own, interleaved with the whole. Shares are of the time of
our whole update. They need not add up to 1, since the compiler optimizes the whole. `simulation` includes observations,
the ends of episodes and new starts; `simulation by brax` is that of brax with its wrappers, at the same actions.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from plastax_kernels import set_lapack_threads

from .._errors import UsageError
from ..config import RunConfig, configure
from ..rl.ant import Ant, brax_arithmetic, quiet
from ..rl.plan import plan_of
from ..rl.programs import AntPrograms
from ._ppo_parts import MEASUREMENTS, parts_of
from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog, Ratio, interleaved, ratio


OURS, BRAX = "ours", "brax"
WARM_UP = 2
"""Rounds that do not count."""

USUAL = {"width": 256, "update_epochs": 8, "num_minibatches": 8, "learning_rate": 1e-3, "max_grad_norm": 1.0}
"""Usual settings of PPO. The laptop preset takes more and larger steps on each rollout, to lose plasticity."""

Row = dict[str, str | float | Ratio | None]


def compare(config: RunConfig, rounds: int) -> list[Row]:
    """A row for ours, one for brax's, and one for each part of ours."""
    problem = plan_of(config).problem
    if problem.num_envs % problem.num_minibatches:
        raise UsageError(
            f"brax's minibatches hold whole environments: num_minibatches={problem.num_minibatches} must divide "
            f"num_envs={problem.num_envs}"
        )
    ant = Ant(problem.backend)
    programs = AntPrograms(config, ant)
    agents = programs.init()

    def our_window():
        nonlocal agents
        agents, result = programs.window(agents)
        return result

    with quiet(), brax_arithmetic():
        from brax.envs.ant import Ant as BraxAnt
        from brax.envs.wrappers.training import wrap

        brax: Any = BraxAnt(backend=problem.backend)
    seconds = whole_updates(config, brax, our_window, rounds)
    agent = jax.tree.map(lambda leaf: leaf[0], agents)
    parts = parts_of(config, ant, wrap(brax, problem.episode_limit), agent)
    timed = interleaved({OURS: lambda: programs.window(agents), **parts}, rounds=rounds)
    return rows_of(config, seconds, timed)


def rows_of(config: RunConfig, seconds: dict[str, list[float]], timed: dict[str, list[float]]) -> list[Row]:
    """The table, from the times of windows of ours and of brax's, and of the parts of ours."""
    plan = plan_of(config)
    updates = plan.measurement.log_every
    rows: list[Row] = []
    for name, own in seconds.items():
        typical = float(np.median(own))
        rows.append(
            {
                "program": name,
                "ms per update": 1e3 * typical / updates,
                "share": None,
                "steps per second": round(plan.window_steps / typical),
                "speed against brax": ratio(seconds, BRAX, name),
            }
        )
    for name, own in timed.items():
        if name == OURS:
            continue
        # A window has several updates, and is measured once.
        times = 1 if name == MEASUREMENTS else updates
        share = ratio(timed, name, OURS)
        rows.append(
            {
                "program": name,
                "ms per update": 1e3 * float(np.median(own)) * times / updates,
                "share": Ratio(*(times * each for each in share)),
            }
        )
    return rows


def whole_updates(
    config: RunConfig, environment: Any, our_window: Callable[[], Any], rounds: int
) -> dict[str, list[float]]:
    """Seconds of a window of ours, and of as many steps of brax's PPO, in every round."""
    plan = plan_of(config)
    problem, width = plan.problem, config.settings["width"]
    seconds: dict[str, list[float]] = {OURS: [], BRAX: []}
    log = ProgressLog()
    log("compiling both")

    def our_turn(_, metrics):
        begin = time.perf_counter()
        jax.block_until_ready(our_window())
        seconds[OURS].append(time.perf_counter() - begin)
        seconds[BRAX].append(plan.window_steps / float(metrics["training/sps"]))
        log(f"round {max(0, len(seconds[OURS]) - WARM_UP)} of {rounds}")

    # Brax calls a function that jax has removed; on one device it only adds a leading axis.
    replicated = patch.object(jax, "device_put_replicated", _replicated, create=True)
    with quiet(), brax_arithmetic(), replicated:
        from brax.training.agents.ppo import networks, train

        train.train(
            environment,
            num_timesteps=plan.window_steps * (rounds + WARM_UP),
            num_evals=rounds + WARM_UP + 1,
            run_evals=False,
            num_envs=problem.num_envs,
            episode_length=problem.episode_limit,
            unroll_length=problem.num_steps,
            num_minibatches=problem.num_minibatches,
            batch_size=problem.num_envs // problem.num_minibatches,
            num_updates_per_batch=problem.update_epochs,
            normalize_observations=problem.normalize_observations,
            learning_rate=config.optimizer.learning_rate,
            entropy_cost=problem.entropy_weight,
            discounting=problem.gamma,
            gae_lambda=problem.gae_lambda,
            reward_scaling=problem.reward_scale,
            clipping_epsilon=problem.clip_eps,
            max_grad_norm=config.optimizer.max_grad_norm,
            network_factory=partial(
                networks.make_ppo_networks,
                policy_hidden_layer_sizes=(width,),
                value_hidden_layer_sizes=(width,),
                activation=jax.nn.relu,
            ),
            progress_fn=our_turn,
        )
    return {name: values[WARM_UP:] for name, values in seconds.items()}


def _replicated(tree, devices):
    return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(devices)), tree)


def main(arguments: list[str] | None = None) -> None:
    """Prints steps per second of both, their ratio, and the parts of our time."""
    parser = bench_parser("rl", __doc__)
    parser.add_argument("--backend", choices=("spring", "positional"), default="spring")
    parser.add_argument("--envs", type=int, default=64, help="number of parallel environments")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--updates", type=int, default=4, help="rollouts in each round")
    asked = parser.parse_args(arguments)
    set_lapack_threads(1)
    sizes = {"backend": asked.backend, "num_envs": asked.envs, "log_every": asked.updates, "seeds": 1}
    config = configure("slippery-ant", "laptop", "bp", **USUAL, **sizes)
    problem, conditions = plan_of(config).problem, Conditions()
    rows = compare(config, asked.rounds)
    show(
        f"PPO on the ant: {asked.backend}, {problem.num_envs} environments, rollouts of {problem.num_steps} steps, "
        f"{problem.update_epochs} epochs of {problem.num_minibatches} minibatches; medians of {asked.rounds} rounds",
        rows,
        conditions,
        as_json=asked.json,
        packages=("jax", "jaxlib", "brax"),
    )


if __name__ == "__main__":
    main()
