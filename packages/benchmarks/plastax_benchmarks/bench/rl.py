"""Environment steps per second of our PPO beside brax's own, on one backend and as many environments.

Run with `plastax bench rl`. Both train an ant with networks of one hidden layer of 256 for actor and critic, with the
same rollouts, minibatches and epochs, observations standardised and actions squashed. After each of brax's epochs comes
a window of ours with as many steps, so that whatever else the machine does falls on both; the first of each, which
compiles, does not count. What differs: brax computes advantages anew in every minibatch, starts all episodes of an
environment from its first state, and has one friction; ours computes advantages once for a rollout, draws every start,
has a friction for each environment that may change at each step, and takes dead units and effective ranks in every
window.
"""

import time
from functools import partial
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import UsageError
from .._threads import single_threaded_lapack
from ..rl.ant import Ant, brax_arithmetic, quiet
from ..rl.config import AntConfig
from ..rl.presets import preset
from ..rl.training import Programs
from .parser import bench_parser


def steps_per_second(config: AntConfig, rounds: int) -> dict[str, list[float]]:
    """Steps per second in every round, ours and brax's."""
    if config.num_envs % config.num_minibatches:
        raise UsageError(
            f"brax's minibatches hold whole environments: num_minibatches={config.num_minibatches} must divide "
            f"num_envs={config.num_envs}"
        )
    ant = Ant(config.backend)
    programs = Programs(config, ant)
    learner = programs.init()
    seen: dict[str, list[float]] = {"ours": [], "brax": []}

    def our_turn(_, metrics):
        nonlocal learner
        begin = time.perf_counter()
        learner, result = programs.window(learner)
        jax.block_until_ready(result)
        seen["ours"].append(config.window_steps / (time.perf_counter() - begin))
        seen["brax"].append(float(metrics["training/sps"]))

    # Brax calls a function of jax that is gone; on one device it is no more than a leading axis.
    replicated = patch.object(jax, "device_put_replicated", _replicated, create=True)
    with quiet(), brax_arithmetic(), replicated:
        from brax.training.agents.ppo import networks, train

        train.train(
            ant.simulator,
            num_timesteps=config.window_steps * (rounds + 1),
            num_evals=rounds + 2,
            run_evals=False,
            num_envs=config.num_envs,
            episode_length=config.episode_limit,
            unroll_length=config.num_steps,
            num_minibatches=config.num_minibatches,
            batch_size=config.num_envs // config.num_minibatches,
            num_updates_per_batch=config.update_epochs,
            normalize_observations=config.normalise_observations,
            learning_rate=config.lr,
            entropy_cost=config.entropy_coeff,
            discounting=config.gamma,
            gae_lambda=config.lambda0,
            reward_scaling=config.reward_scale,
            clipping_epsilon=config.clip_eps,
            max_grad_norm=config.max_grad_norm,
            network_factory=partial(
                networks.make_ppo_networks,
                policy_hidden_layer_sizes=(config.hidden_size,),
                value_hidden_layer_sizes=(config.hidden_size,),
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
    parser.add_argument("--envs", type=int, default=64, help="environments side by side")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--updates", type=int, default=4, help="rollouts of each round")
    asked = parser.parse_args(arguments)
    single_threaded_lapack()
    config = preset("laptop", backend=asked.backend, num_envs=asked.envs, seeds=1, update_log_freq=asked.updates)
    seen = steps_per_second(config, asked.rounds)
    print(
        f"{asked.backend}, {config.num_envs} environments, rollouts of {config.num_steps} steps, "
        f"{config.update_epochs} epochs of {config.num_minibatches} minibatches; medians of {asked.rounds} rounds"
    )
    for name, values in seen.items():
        print(f"  {name:6} {np.median(values):9.0f} environment steps per second")
    print(f"  ours / brax = {np.median(np.array(seen['ours']) / np.array(seen['brax'])):.2f}")


if __name__ == "__main__":
    main()
