"""A child process that asks jax for the place of its parent in a job, and for the addresses of process 0's parent."""

import json
import sys

import jax
import numpy as np


SIZE = 4096
VISIBLE = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")
"""Under SLURM and Open MPI jax gives each process of a machine a GPU of its own."""


def main() -> None:
    """Reads the addresses of the parent as JSON from stdin, and prints what was found as JSON."""
    from jax.experimental import multihost_utils

    mine = json.load(sys.stdin)
    jax.distributed.initialize(initialization_timeout=int(mine["seconds"]))
    content = np.frombuffer(json.dumps(mine).encode().ljust(SIZE), np.uint8)
    first = bytes(np.asarray(multihost_utils.broadcast_one_to_all(content))).decode()
    print()  # Libraries may have printed half a line.
    config = {name: jax.config.values[name] for name in VISIBLE}
    place = {"index": jax.process_index(), "count": jax.process_count(), "first": json.loads(first), "config": config}
    print(json.dumps(place), flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
