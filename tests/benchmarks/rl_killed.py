"""A run that kills itself: `python rl_killed.py FOLDER WINDOWS`."""

import os
import signal
import sys
from pathlib import Path

import jax
from rl_support import QUIET, Sledge, everything

from plastax_benchmarks.rl.programs import AntPrograms
from plastax_benchmarks.rl.training import train
from plastax_kernels import set_lapack_threads


class Deadly(AntPrograms):
    """Kills the process after some windows, in the middle of the next."""

    def __init__(self, config, environment, windows):
        super().__init__(config, environment)
        inner, left = self.window, [windows]

        def window(agents):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return inner(agents)

        self.window = window


if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    set_lapack_threads(1)
    config = everything(Path(sys.argv[1])).replace(log="tensorboard")
    train(config, Deadly(config, Sledge(), int(sys.argv[2])), console=QUIET)
