"""A run of the ant: the host loop around the compiled program, with a run folder that can be resumed after a kill."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn

from plastax_kernels import set_lapack_threads

from ..config import RunConfig
from ..runs import RunFolder, RunStopped, hold_interrupts, open_run, read_stream
from ..training.host import keep_compiled_programs
from ..training.progress import bar_or_lines
from ..training.stored import restore
from .agent import EARLIER_AGENT, Agent, WindowResult
from .curvature import spectra
from .figure import figure
from .friction import around_changes, changes_between, friction_of_task
from .plan import AntPlan, plan_of
from .programs import AntPrograms


STREAMS = ("metrics", "timing", "diagnostics", "changes")
MAY_CHANGE = ("total_steps", "checkpoint_every")


def run_slippery_ant(config: RunConfig, *, quiet: bool = False) -> Path:
    """Trains PPO on a floor whose friction changes. Call it again to resume a run that was stopped.

    **Arguments:**

    - `config`: the settings, such as `configure("slippery-ant", "laptop", "l2_er")`.
    - `quiet`: whether to show no progress.

    **Returns:**

    The run folder.
    """
    from .ant import Ant

    set_lapack_threads(1)
    keep_compiled_programs()
    return train(config, AntPrograms(config, Ant(plan_of(config).problem.backend)), quiet=quiet)


def train(config: RunConfig, programs: AntPrograms, *, quiet: bool = False) -> Path:
    """The host loop: it calls the compiled program for one window after the other, and writes the run folder."""
    console, plan, method = Console(quiet=quiet), plan_of(config), config.method.name
    may_change = [name for name in MAY_CHANGE if not (config.optimizer.anneal and name == "total_steps")]
    with open_run(config.folder, config.as_json(), read=stored_form, streams=STREAMS, may_change=may_change) as run:
        found = restore(run.restore, config, jax.eval_shape(programs.init), EARLIER_AGENT)
        done, agents = (0, programs.init()) if found is None else found
        history = read_stream(run.path / "metrics.jsonl") if done else []
        if found is not None:
            console.print(f"{run.path}: resuming after step {done * plan.window_steps}")
        if done >= plan.windows:
            more = f", more than the {plan.problem.total_steps:,} requested" if done > plan.windows else ""
            console.print(f"{method}: finished. {done * plan.window_steps:,} steps are done{more}.")
        with _progress(console, plan) as progress:
            bar = progress.add_task(
                method, total=plan.windows, completed=done, words="compiling", visible=done < plan.windows
            )
            for number in range(done, plan.windows):
                hessians_at_changes(plan, programs, run, agents, number)
                # Ctrl-C waits a few seconds for the end of the window, and everything is saved.
                with hold_interrupts() as held:
                    begin = time.perf_counter()
                    agents, result = programs.window(agents)
                    result = jax.tree.map(np.asarray, jax.block_until_ready(result))
                    seconds = time.perf_counter() - begin
                    rows = lines(config, programs.seeds, number, result)
                    history += rows
                    run.append("metrics", rows)
                    run.append("timing", [{"step": rows[0]["step"], "seconds": seconds}])
                    run.append("changes", around_changes(history, plan, number))
                    due = (number + 1) % plan.measurement.checkpoint_every == 0 or number + 1 == plan.windows
                    if due or held.requested:
                        run.save(number + 1, agents)
                progress.update(bar, advance=1, words=_words(rows))
        run.write("returns.png", figure(history, config))
    console.print(f"Figure: {run.path / 'returns.png'}   Numbers: {run.path / 'metrics.jsonl'}")
    return run.path


def stored_form(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a `config.json`, possibly from an earlier version, in their current form."""
    return RunConfig.from_json(values).as_json()


def lines(config: RunConfig, seeds: Sequence[int], number: int, result: WindowResult) -> list[dict[str, Any]]:
    """A line for each seed. Raises if a loss is NaN or infinite."""
    plan, optimizer = plan_of(config), config.optimizer
    step, sums = (number + 1) * plan.window_steps, result.sums
    for name, values in result.losses._asdict().items():
        if not np.isfinite(values).all():
            seed, update = np.argwhere(~np.isfinite(values))[0]
            at = number * plan.window_steps + (int(update) + 1) * plan.problem.rows
            raise RunStopped(
                f"{config.method.name}: {name} is not finite at step {at}, seed {seeds[seed]}: training has diverged. "
                f"What was saved before is intact. Try a smaller --learning-rate (now {optimizer.learning_rate}) or "
                f"--max-grad-norm (now {optimizer.max_grad_norm})"
            )

    def line(i: int, seed: int) -> dict[str, Any]:
        episodes = int(sums.episodes[i])
        return {
            "step": step,
            "seed": seed,
            "friction": float(result.friction[i]),
            "return": float(sums.total[i]) / episodes if episodes else None,
            "episode_length": float(sums.length[i]) / episodes if episodes else None,
            "episodes": episodes,
            "reward": float(sums.reward[i]) / plan.window_steps,
            "nan_resets": int(sums.nan_resets[i]),
            "dead": {name: int(values[i]) for name, values in result.dead.items()},
            "effective_rank": {name: float(values[i]) for name, values in result.effective_rank.items()},
            **{name: float(values[i].mean()) for name, values in result.losses._asdict().items()},
        }

    return [line(i, seed) for i, seed in enumerate(seeds)]


def hessians_at_changes(plan: AntPlan, programs: AntPrograms, run: RunFolder, agents: Agent, number: int) -> None:
    """Hessian spectra before a window in which friction changes: at the old and at the new friction."""
    every = plan.measurement.diagnose_every
    if not every:
        return
    for change in [0] if number == 0 else changes_between(plan, number, number + 1):
        for when, task in (("end", change - 1), ("start", change)):
            if task < 0 or task % every:
                continue
            frictions = [friction_of_task(plan.problem, seed, task) for seed in programs.seeds]
            keys = jax.vmap(lambda seed, n=2 * change + (when == "end"): _key(seed, n))(programs.seed_array())
            rows = programs.rows_at(agents, jnp.asarray(frictions, jnp.float32), keys)
            for i, seed in enumerate(programs.seeds):
                model, mine = jax.tree.map(lambda x, i=i: x[i], (agents.model, rows))
                about = {
                    "task": task,
                    "seed": seed,
                    "when": when,
                    "rows": "train",
                    "step": number * plan.window_steps,
                    "friction": frictions[i],
                }
                for name, line, content in spectra(plan, model, mine, keys[i]):
                    run.write(f"spectra/task{task}_{when}_{name}_seed{seed}.npz", content)
                    run.append("diagnostics", [about | line])


def _key(seed, number):
    """For measurements, which must not affect training."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(0x5EED), seed), number)


def _words(rows: list[dict[str, Any]]) -> str:
    returns = [row["return"] for row in rows if row["return"] is not None]
    mean = f"{np.mean(returns):.1f}" if returns else "-"
    return f"friction {rows[0]['friction']:.3f}, reward {np.mean([row['reward'] for row in rows]):.2f}, return {mean}"


def _progress(console: Console, plan: AntPlan) -> Progress:
    """A bar or lines, which count windows of updates."""
    columns = [
        TextColumn("{task.description:>12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("windows   {task.fields[words]}"),
        TimeRemainingColumn(),
    ]

    def words(task: Task) -> str:
        step = round(task.completed) * plan.window_steps
        return f"step {step:,}/{plan.steps:,}, {task.fields['words']}"

    return bar_or_lines(console, columns, words, "steps", per_step=plan.window_steps)
