"""An episode of a trained ant as a page for the browser."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import UsageError
from ..runs import RunError, read_checkpoint
from .ant import Ant, brax_arithmetic, quiet
from .config import AntConfig
from .environment import State
from .normalizer import normalise
from .policy import to_action
from .ppo import Learner
from .rollout import policy_of
from .training import Programs


def read_config(run: Path) -> AntConfig:
    """The configuration of a run folder."""
    path = run / "config.json"
    if not path.exists():
        raise RunError(f"{run} is no run folder: there is no config.json in it")
    found = json.loads(path.read_text())
    if found.get("problem") != "slippery-ant":
        raise RunError(f"{run} is a run of {found.get('problem')!r}: only slippery-ant can be played")
    known = {field.name for field in fields(AntConfig)}
    return AntConfig(**{name: value for name, value in found.items() if name in known}, out=run)


def read_learner(run: Path, config: AntConfig, environment: Any, seed: int) -> tuple[Learner, int]:
    """A learner as the newest checkpoint has it, and the number of its environment steps."""
    programs = Programs(config, environment)
    if seed not in programs.seeds:
        raise UsageError(f"{run} has seeds {', '.join(map(str, programs.seeds))}, not {seed}")
    found = read_checkpoint(run, jax.eval_shape(programs.init))
    if found is None:
        raise RunError(f"{run} has no checkpoint yet: let it run until one is saved")
    windows, learners = found
    place = programs.seeds.index(seed)
    return jax.tree.map(lambda x: x[place], learners), windows * config.window_steps


def episode(config: AntConfig, ant: Ant, learner: Learner, friction, key, steps: int) -> tuple[State, Any, Any]:
    """The most likely actions from one start on: all states, rewards, and whether the ant was still up before each."""

    def step(carry, _):
        state, up = carry
        policy = policy_of(learner.model, normalise(learner.normaliser, state.observation[None]))
        outcome = ant.step(state, to_action(policy.mean[0], config.actions))
        healthy = ~outcome.terminated & jnp.all(jnp.isfinite(outcome.state.observation))
        return (outcome.state, up & healthy), (outcome.state, outcome.reward, up)

    start = ant.reset(key, friction)
    return jax.lax.scan(step, (start, jnp.asarray(True)), length=steps)[1]


def play(
    run: Path,
    /,
    out: Path | None = None,
    seed: int | None = None,
    friction: float | None = None,
    steps: int = 500,
    start: int = 0,
) -> Path:
    """Write an episode of a trained ant as a page for the browser.

    The page holds the episode; the viewer itself (brax's, with three.js) comes from the web when the page is opened.

    Args:
        run: the folder of a slippery-ant run.
        out: the page. By default episode.html in the run folder.
        seed: which of the trained seeds. By default the first.
        friction: of the floor. By default that of the run's last step.
        steps: of 0.05 s each; fewer if the ant falls.
        start: the seed of the episode's start.

    """
    config = read_config(run)
    ant = Ant(config.backend)
    seed = config.seed if seed is None else seed
    learner, done = read_learner(run, config, ant, seed)
    if friction is None:
        from .friction import friction_at

        last = jnp.asarray(max(done - 1, 0), jnp.int32)
        friction = float(friction_at(config.schedule(seed), config.change_every, config.friction, last))
    acted = jax.jit(lambda learner, friction, key: episode(config, ant, learner, friction, key, steps))
    states, rewards, up = acted(learner, jnp.asarray(friction, jnp.float32), jax.random.key(start))
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

        # Each of these states is a whole step apart, not one of the simulator's own short ones.
        system: Any = ant.simulator.sys.tree_replace({"opt.timestep": float(ant.simulator.dt)})
        return html.render(system, states, height=720)
