"""A process of a job, or one with several devices: `python one_of_several.py '[["folder", {...}], ...]'`.

Each entry is a run: its folder, and optionally `ant` (or else a regression), `tasks`, `job` (the arguments of
`start_processes`) and `kill` (the task in which the process kills itself).
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
from rl_support import QUIET, Sledge, tiny
from toy import toy_config

from plastax_benchmarks.training.distributed.processes import Processes
from plastax_benchmarks.training.distributed.start import start_processes
from plastax_benchmarks.training.members import members_of


SWEEP = {"learning_rate": (0.01, 1e20)}
"""One half of the members diverges in the first task."""


CASES = [(True, 16), (True, 18), (True, 7), (False, 16)]


def devices_of_report(images, rows):
    """The number of devices that the rows of a report are spread over."""
    from plastax_benchmarks.training.curvature import _mesh

    config = toy_config("continual-imagenet" if images else "permuted-mnist")
    mesh = _mesh(SimpleNamespace(config=config), rows)
    return 1 if mesh is None else mesh.size


def toy_ant(folder, tasks=(4,), job=None, diagnose=2):
    """Trains three seeds on a sledge, and resumes the run if there is more than one number of tasks."""
    config = tiny(seeds=3, diagnose_every=diagnose, diagnose_size=10, checkpoint_every=2, out=Path(folder))
    with Processes() if job is None else start_processes(*job) as processes:
        from plastax_benchmarks.rl.programs import AntPrograms
        from plastax_benchmarks.rl.training import train

        members = members_of(config, {})
        own = [members[i] for i in processes.share(len(members))]
        programs = AntPrograms(config, Sledge(), own, jax.local_devices())
        for count in tasks:
            train(
                config.replace(total_steps=128 * count), programs, members=members, console=QUIET, processes=processes
            )
        return config.folder


def toy_run(folder, tasks=4, job=None, kill=None):
    """Trains six members on a few bits."""
    settings = {"seeds": 3, "num_tasks": tasks, "checkpoint_every": 2, "epsilon_rank_every": 2, "epsilon_rank_rows": 5}
    config = toy_config("slowly-changing-regression", "l2_er", out=Path(folder), log="tensorboard", **settings)
    with Processes() if job is None else start_processes(*job) as processes:
        # Not before: a job may restrict the devices of a process.
        from plastax_benchmarks.training import loop, replicas

        if kill is not None:
            evaluate = replicas.Replicas.evaluate

            def evaluate_or_die(self, learner, index):
                if index == kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                return evaluate(self, learner, index)

            replicas.Replicas.evaluate = evaluate_or_die
        return loop.run(config, sweep=SWEEP, console=QUIET, processes=processes)


if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    for folder, options in json.loads(sys.argv[1]):
        (toy_ant if options.pop("ant", False) else toy_run)(folder, **options)
    print(jax.local_device_count(), "devices: done")
    print(", ".join(f"{devices_of_report(images, rows)} of {rows}" for images, rows in CASES))
