"""A run of Slippery Ant: the host loop around the compiled program, with a run folder that survives a kill."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn

import plastax

from .._threads import single_threaded_lapack
from ..runs import RunFolder, RunStopped, hold_interrupts, open_run, read_stream
from ..training.cache import keep_compiled_programs
from ..training.progress import bar_or_lines
from . import ppo
from .changes import around_changes, changes_between
from .config import AntConfig
from .curvature import spectra
from .environment import Environment
from .figure import figure
from .friction import friction_after
from .methods import RECIPES, optimizer_for
from .presets import fill_in


STREAMS = ("metrics", "timing", "diagnostics", "changes")
MAY_CHANGE = ("num_tasks", "total_steps", "checkpoint_every")


class Programs:
    """The compiled parts of a run, for all seeds at once. Nothing is compiled twice, whatever the friction."""

    def __init__(self, config: AntConfig, environment: Environment):
        optimizer_of = optimizer_for(config, environment.observation_size, environment.action_size)
        recipe = RECIPES[config.method]
        # A new friction is a new task, in which the window of the effective-rank step starts empty.
        at_change = plastax.restart_windows if recipe.effective_rank else None
        self.seeds = [config.seed + i for i in range(config.seeds)]
        self._init = jax.jit(jax.vmap(partial(ppo.init, config, environment, optimizer_of, recipe.layer_norm)))
        schedules = jnp.asarray([config.schedule(seed) for seed in self.seeds], jnp.int32)
        window = jax.vmap(partial(ppo.window, config, environment, optimizer_of, at_change))
        self.window = jax.jit(lambda learner: window(learner, schedules), donate_argnums=0)

        def rows_at(learner: ppo.Learner, friction, key):
            frictions = jnp.full(config.num_steps, friction, jnp.float32)
            return ppo.collect(config, environment, learner, key, frictions)[1]

        self.rows_at = jax.jit(jax.vmap(rows_at, in_axes=0))
        """A rollout at some friction that leaves no trace in the training: for the Hessians."""

    def seed_array(self) -> UInt32[Array, " seeds"]:
        """The seeds, to be vmapped over."""
        return jnp.asarray(self.seeds, jnp.uint32)

    def init(self) -> ppo.Learner:
        """All learners, before the first step."""
        return self._init(self.seed_array())


def run_slippery_ant(config: AntConfig, *, quiet: bool = False) -> Path:
    """Trains PPO on a floor whose friction changes; the same command goes on with a run that was stopped.

    **Arguments:**

    - `config`: the settings. What the method needs and is not given comes from the preset.
    - `quiet`: no progress on the screen.

    **Returns:**

    The run folder.
    """
    from .ant import Ant

    config = fill_in(config)
    single_threaded_lapack()
    keep_compiled_programs()
    return train(config, Programs(config, Ant(config.backend)), quiet=quiet)


def train(config: AntConfig, programs: Programs, *, quiet: bool = False) -> Path:
    """The host loop: what is compiled runs a window at a time, and all that is seen goes to the run folder."""
    console = Console(quiet=quiet)
    may_change = [name for name in MAY_CHANGE if not (config.anneal_lr and name == "total_steps")]
    with open_run(config.folder, config.as_json(), streams=STREAMS, may_change=may_change) as run:
        found = run.restore(jax.eval_shape(programs.init))
        done, learner = (0, programs.init()) if found is None else found
        history = read_stream(run.path / "metrics.jsonl") if done else []
        if found is not None:
            console.print(f"{run.path}: going on after step {done * config.window_steps}")
        if done >= config.windows:
            more = f", more than the {config.total_steps:,} asked for" if done > config.windows else ""
            console.print(f"{config.method}: finished. {done * config.window_steps:,} steps are done{more}.")
        with _progress(console, config) as progress:
            bar = progress.add_task(
                config.method, total=config.windows, completed=done, words="compiling", visible=done < config.windows
            )
            for number in range(done, config.windows):
                hessians_at_changes(config, programs, run, learner, number)
                # Ctrl-C waits for the end of the window, a few seconds, and then finds all of it saved.
                with hold_interrupts() as held:
                    begin = time.perf_counter()
                    learner, seen = programs.window(learner)
                    seen = jax.tree.map(np.asarray, jax.block_until_ready(seen))
                    seconds = time.perf_counter() - begin
                    rows = lines(config, programs.seeds, number, seen)
                    history += rows
                    run.append("metrics", rows)
                    run.append("timing", [{"step": rows[0]["step"], "seconds": seconds}])
                    run.append("changes", around_changes(history, config, number))
                    due = (number + 1) % config.checkpoint_every == 0 or number + 1 == config.windows
                    if due or held.requested:
                        run.save(number + 1, learner)
                progress.update(bar, advance=1, words=_words(rows))
        run.write("returns.png", figure(history, config))
    console.print(f"Figure: {run.path / 'returns.png'}   Numbers: {run.path / 'metrics.jsonl'}")
    return run.path


def lines(config: AntConfig, seeds: Sequence[int], number: int, seen: ppo.Window) -> list[dict[str, Any]]:
    """A line for each seed. Raises if a loss is NaN or infinite."""
    step, sums = (number + 1) * config.window_steps, seen.sums
    for name, values in seen.losses._asdict().items():
        if not np.isfinite(values).all():
            seed, update = np.argwhere(~np.isfinite(values))[0]
            at = number * config.window_steps + (int(update) + 1) * config.rows
            raise RunStopped(
                f"{config.method}: {name} is not finite at step {at}, seed {seeds[seed]}: training has diverged. What "
                f"was saved before is intact. Try a smaller lr (now {config.lr}) or max_grad_norm (now "
                f"{config.max_grad_norm})"
            )

    def line(i: int, seed: int) -> dict[str, Any]:
        episodes = int(sums.episodes[i])
        return {
            "step": step,
            "seed": seed,
            "friction": float(seen.friction[i]),
            "return": float(sums.total[i]) / episodes if episodes else None,
            "episode_length": float(sums.length[i]) / episodes if episodes else None,
            "episodes": episodes,
            "reward": float(sums.reward[i]) / config.window_steps,
            "nan_resets": int(sums.nan_resets[i]),
            "dead": {name: int(values[i]) for name, values in seen.dead.items()},
            "effective_rank": {name: float(values[i]) for name, values in seen.effective_rank.items()},
            **{name: float(values[i].mean()) for name, values in seen.losses._asdict().items()},
        }

    return [line(i, seed) for i, seed in enumerate(seeds)]


def hessians_at_changes(config: AntConfig, programs: Programs, run: RunFolder, learner: ppo.Learner, number: int):
    """Hessian spectra before a window in which friction changes: at the friction that ends and at that which begins."""
    if not (config.compute_hessian_init or config.compute_hessian_end):
        return
    for change in [0] if number == 0 else changes_between(config, number, number + 1):
        if change % config.compute_hessian_interval:
            continue
        whens = [("end", change - 1)] if config.compute_hessian_end and change else []
        whens += [("start", change)] if config.compute_hessian_init else []
        for when, task in whens:
            frictions = [_friction(config, seed, task) for seed in programs.seeds]
            keys = jax.vmap(lambda seed, n=2 * change + (when == "end"): _key(seed, n))(programs.seed_array())
            rows = programs.rows_at(learner, jnp.asarray(frictions, jnp.float32), keys)
            for i, seed in enumerate(programs.seeds):
                model, mine = jax.tree.map(lambda x, i=i: x[i], (learner.model, rows))
                about = {
                    "task": task,
                    "seed": seed,
                    "when": when,
                    "rows": "train",
                    "step": number * config.window_steps,
                    "friction": frictions[i],
                }
                for name, line, content in spectra(config, model, mine, keys[i]):
                    run.write(f"spectra/task{task}_{when}_{name}_seed{seed}.npz", content)
                    run.append("diagnostics", [about | line])


def _friction(config: AntConfig, seed: int, task: int) -> float:
    """The friction that a seed meets after so many changes."""
    return float(friction_after(config.schedule(seed), task)) if config.friction is None else config.friction


def _key(seed, number):
    """For what is looked at beside the training, which must not depend on it."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(0x5EED), seed), number)


def _words(rows: list[dict[str, Any]]) -> str:
    returns = [row["return"] for row in rows if row["return"] is not None]
    mean = f"{np.mean(returns):.1f}" if returns else "-"
    return f"friction {rows[0]['friction']:.3f}, reward {np.mean([row['reward'] for row in rows]):.2f}, return {mean}"


def _progress(console: Console, config: AntConfig) -> Progress:
    """A bar or lines, which count windows of updates."""
    columns = [
        TextColumn("{task.description:>12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("windows   {task.fields[words]}"),
        TimeRemainingColumn(),
    ]

    def words(task: Task) -> str:
        step = round(task.completed) * config.window_steps
        return f"step {step:,}/{config.windows * config.window_steps:,}, {task.fields['words']}"

    return bar_or_lines(console, columns, words, "steps", per_step=config.window_steps)
