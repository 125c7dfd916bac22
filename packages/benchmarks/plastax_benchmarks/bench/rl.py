"""Environment steps per second of our PPO and of brax's, on the same backend with the same number of environments.

Run with `plastax bench rl`. Both train an ant with networks of one hidden layer of 256 for actor and critic, with the
same rollouts, minibatches and epochs, standardized observations and squashed actions. Each of brax's epochs is followed
by a window of ours with the same number of steps, so that other work of the machine slows down both. The first of each
compiles and does not count. Differences: brax recomputes advantages in every minibatch, starts all episodes of an
environment from its first state, and has one friction. Ours computes advantages once per rollout, draws a new start for
every episode, has a friction for each environment that may change at each step, and measures dead units and effective
ranks in every window.
"""

import time
from functools import partial
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
from .parser import bench_parser


def steps_per_second(config: RunConfig, rounds: int) -> dict[str, list[float]]:
    """Steps per second in every round, ours and brax's."""
    plan = plan_of(config)
    problem, width = plan.problem, config.settings["width"]
    if problem.num_envs % problem.num_minibatches:
        raise UsageError(
            f"brax's minibatches hold whole environments: num_minibatches={problem.num_minibatches} must divide "
            f"num_envs={problem.num_envs}"
        )
    ant = Ant(problem.backend)
    programs = AntPrograms(config, ant)
    agents = programs.init()
    seen: dict[str, list[float]] = {"ours": [], "brax": []}

    def our_turn(_, metrics):
        nonlocal agents
        begin = time.perf_counter()
        agents, result = programs.window(agents)
        jax.block_until_ready(result)
        seen["ours"].append(plan.window_steps / (time.perf_counter() - begin))
        seen["brax"].append(float(metrics["training/sps"]))

    # Brax calls a function that jax has removed; on one device it only adds a leading axis.
    replicated = patch.object(jax, "device_put_replicated", _replicated, create=True)
    with quiet(), brax_arithmetic(), replicated:
        from brax.training.agents.ppo import networks, train

        train.train(
            ant.simulator,
            num_timesteps=plan.window_steps * (rounds + 1),
            num_evals=rounds + 2,
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
    return {name: values[1:] for name, values in seen.items()}


def _replicated(tree, devices):
    return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(devices)), tree)


def main(arguments: list[str] | None = None) -> None:
    """Prints steps per second of both, and their ratio."""
    parser = bench_parser("rl", __doc__)
    parser.add_argument("--backend", choices=("spring", "positional"), default="spring")
    parser.add_argument("--envs", type=int, default=64, help="number of parallel environments")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--updates", type=int, default=4, help="rollouts in each round")
    asked = parser.parse_args(arguments)
    set_lapack_threads(1)
    config = configure(
        "slippery-ant", "laptop", "bp", backend=asked.backend, num_envs=asked.envs, seeds=1, log_every=asked.updates
    )
    problem = plan_of(config).problem
    seen = steps_per_second(config, asked.rounds)
    print(
        f"{asked.backend}, {problem.num_envs} environments, rollouts of {problem.num_steps} steps, "
        f"{problem.update_epochs} epochs of {problem.num_minibatches} minibatches; medians of {asked.rounds} rounds"
    )
    for name, values in seen.items():
        print(f"  {name:6} {np.median(values):9.0f} environment steps per second")
    print(f"  ours / brax = {np.median(np.array(seen['ours']) / np.array(seen['brax'])):.2f}")


if __name__ == "__main__":
    main()
