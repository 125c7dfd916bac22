"""An episode of a trained ant as a page for the browser."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import UsageError, usage_errors
from ..config import RunConfig
from ..runs import RunError, read_checkpoint, swept_name
from ..training.members import Member, members_of
from ..training.stored import restore
from .agent import EARLIER_AGENT, Agent
from .ant import Ant, brax_arithmetic, quiet
from .environment import State
from .friction import friction_at
from .normalizer import normalize
from .plan import plan_of
from .policy import policy_of, to_action
from .programs import AntPrograms, shared_config


def read_config(run: Path) -> RunConfig:
    """The configuration of a run folder, also from an earlier version."""
    path = run / "config.json"
    if not path.exists():
        raise RunError(
            f"{run} is not a run folder: it has no config.json. Create one with `plastax run slippery-ant --out {run}`"
        )
    values = json.loads(path.read_text())
    if values.get("problem") != "slippery-ant":
        raise RunError(f"{run} is a run of {values.get('problem')!r}: only slippery-ant can be played")
    with usage_errors():
        return RunConfig.from_json(values, out=run)


def read_agent(
    run: Path, config: RunConfig, environment: Any, seed: int, swept: str | None = None
) -> tuple[Agent, int]:
    """The agent of a member from the newest checkpoint, and the number of its environment steps."""
    members = members_of(config, json.loads((run / "config.json").read_text()).get("sweep") or {})
    place = _place(run, members, seed, swept)
    programs = AntPrograms(shared_config(config, members), environment, members)
    found = restore(partial(read_checkpoint, run), programs.config, jax.eval_shape(programs.init), EARLIER_AGENT)
    if found is None:
        raise RunError(f"{run} has no checkpoint yet: let it run until one is saved")
    windows, agents = found
    return jax.tree.map(lambda x: x[place], agents), windows * plan_of(config).window_steps


def _place(run: Path, members: Sequence[Member], seed: int, swept: str | None) -> int:
    """The index of a member among all members."""
    seeds = list(dict.fromkeys(member.seed for member in members))
    names = list(dict.fromkeys(swept_name(member.values) for member in members))
    swept = names[0] if swept is None else swept
    if seed not in seeds:
        raise UsageError(f"{run} has seeds {', '.join(map(str, seeds))}, not {seed}")
    if swept not in names:
        has = f"has the members {', '.join(names)} of a sweep" if names != [""] else "is not a sweep"
        raise UsageError(f"{run} {has}, and not {swept}")
    return names.index(swept) * len(seeds) + seeds.index(seed)


def episode(config: RunConfig, ant: Ant, agent: Agent, friction, key, steps: int) -> tuple[State, Any, Any]:
    """An episode with the most likely actions: all states, rewards, and whether the ant was upright before each."""
    actions = plan_of(config).problem.actions

    def step(carry, _):
        state, up = carry
        policy = policy_of(agent.model, normalize(agent.normalizer, state.observation[None]))
        outcome = ant.step(state, to_action(policy.mean[0], actions))
        healthy = ~outcome.terminated & jnp.all(jnp.isfinite(outcome.state.observation))
        return (outcome.state, up & healthy), (outcome.state, outcome.reward, up)

    start = ant.reset(key, friction)
    return jax.lax.scan(step, (start, jnp.asarray(True)), length=steps)[1]


def play(
    run: Path,
    /,
    out: Path | None = None,
    seed: int | None = None,
    swept: str | None = None,
    friction: float | None = None,
    steps: int = 500,
    start: int = 0,
) -> Path:
    """Write an episode of a trained ant as a page for the browser.

    The page holds the episode; the viewer (brax's, with three.js) is loaded from the web when the page is opened.

    Args:
        run: the folder of a slippery-ant run.
        out: file for the page. By default episode.html in the run folder.
        seed: which of the trained seeds to show. By default the first.
        swept: which member of a sweep, such as learning_rate-0.001. By default the first.
        friction: friction of the floor. By default that of the run's last step.
        steps: number of steps of 0.05 s; fewer if the ant falls.
        start: random seed of the episode's initial state.

    """
    config = read_config(run)
    problem = plan_of(config).problem
    ant = Ant(problem.backend)
    seed = config.seed if seed is None else seed
    agent, done = read_agent(run, config, ant, seed, swept)
    if friction is None:
        last = jnp.asarray(max(done - 1, 0), jnp.int32)
        friction = float(friction_at(problem, problem.schedule(seed), last))
    acted = jax.jit(lambda agent, friction, key: episode(config, ant, agent, friction, key, steps))
    states, rewards, up = acted(agent, jnp.asarray(friction, jnp.float32), jax.random.key(start))
    number = int(up.sum())
    out = run / "episode.html" if out is None else out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(ant, [jax.tree.map(lambda x, i=i: x[i], states.physics.pipeline_state) for i in range(number)]))
    print(f"{out}: {number} steps at friction {friction:.3g}, return {float(rewards[:number].sum()):.1f}")
    return out


def page(ant: Ant, states: list[Any]) -> str:
    """Brax's viewer with these states."""
    with quiet(), brax_arithmetic():
        from brax.io import html

        # These states are a whole step apart, not one of the simulator's short steps.
        system: Any = ant.simulator.sys.tree_replace({"opt.timestep": float(ant.simulator.dt)})
        return html.render(system, states, height=720)
