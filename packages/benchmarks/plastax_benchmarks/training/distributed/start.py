"""How the processes of a job find each other: by an address on the command line, or by what jax knows of clusters."""

import errno
import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import jax

from ..._errors import UsageError
from .processes import Processes, SeveralProcesses
from .wire import accept, connect


SECONDS = 120.0
"""How long to wait for the other processes."""

FLAGS = ("--coordinator-address", "--num-processes", "--process-id")


class Job(NamedTuple):
    """The place of this process in a job."""

    index: int
    count: int
    addresses: Sequence[tuple[str, int]]
    token: str
    listening: socket.socket | None


def start_processes(
    address: str | None = None, count: int | None = None, index: int | None = None, seconds: float = SECONDS
) -> Processes:
    """Connects this process with the others of its job. To be called by all of them, before jax uses a device.

    **Arguments:**

    - `address`: `HOST:PORT` where process 0 listens.
    - `count`, `index`: the number of processes, and the index of this one. Without these three arguments they are what
        `jax.distributed.initialize` finds: SLURM, Open MPI and Kubernetes are known to it.
    - `seconds`: how long to wait for the others.
    """
    given = [value is not None for value in (address, count, index)]
    if any(given) and not all(given):
        missing = ", ".join(flag for flag, have in zip(FLAGS, given, strict=True) if not have)
        raise UsageError(
            f"{', '.join(FLAGS)} belong together: {missing} is missing. Without all three, jax looks for a cluster"
        )
    if address is not None and count is not None and index is not None:
        job = _given_job(address, count, index)
    else:
        job = _found_job(seconds)
    if job.count == 1:
        return Processes()
    if job.index == 0:
        assert job.listening is not None
        with job.listening:
            return SeveralProcesses(0, job.count, accept(job.listening, job.count, job.token, seconds))
    connection = connect(job.addresses, job.index, job.count, job.token, seconds)
    return SeveralProcesses(job.index, job.count, [connection])


def _given_job(address: str, count: int, index: int) -> Job:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--coordinator-address must be HOST:PORT, as in 10.0.0.1:8476; got {address!r}")
    if count < 1:
        raise UsageError(f"--num-processes must be at least 1, got {count}")
    if not 0 <= index < count:
        raise UsageError(f"--process-id must be at least 0 and below --num-processes {count}, got {index}")
    listening = _listen(host, int(port)) if index == 0 and count > 1 else None
    return Job(index, count, [(host, int(port))], "", listening)


def _listen(host: str, port: int) -> socket.socket:
    """Listens on all interfaces, since others may know this machine by another address; on one for a local address."""
    local = host == "localhost" or host == "::1" or host.startswith("127.")
    try:
        family = socket.getaddrinfo(host if local else None, port, flags=socket.AI_PASSIVE)[0][0]
        if not local and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((host if local else "", port), family=family if local else socket.AF_INET)
    except OSError as error:
        used = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsageError(
            f"process 0 cannot listen at port {port} ({used}): choose another port in --coordinator-address"
        ) from error


def _found_job(seconds: float) -> Job:
    """The place of this process according to jax.

    jax is asked in a child process: it could not be used as if there were a single process afterwards, and it ends its
    process with a C++ stack trace if others do not answer.
    """
    listening = _listen("", 0)
    port = listening.getsockname()[1]
    mine = {"addresses": [[name, port] for name in _own_names()], "token": secrets.token_hex(16), "seconds": seconds}
    child = subprocess.run(
        [sys.executable, "-m", "plastax_benchmarks.training.distributed.discovery"],
        input=json.dumps(mine),
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [line for line in child.stdout.splitlines() if line.startswith("{")]
    if child.returncode != 0 or not answers:
        listening.close()
        if "should be defined" in child.stderr or "must be defined" in child.stderr:
            raise UsageError(f"jax found no cluster (SLURM, Open MPI, Kubernetes): give {', '.join(FLAGS)}")
        # jax ends with a C++ stack trace if others do not answer, and with a Python error otherwise.
        errors = [line for line in child.stderr.splitlines() if re.match(r"[\w.]*Error: ", line)]
        raise UsageError(
            f"the processes of this job did not find each other within {seconds:.0f} s: start all of them at once, or "
            f"give {', '.join(FLAGS)}" + "".join(f" ({error})" for error in errors[-1:])
        )
    found = json.loads(answers[-1])
    for name, value in found["config"].items():
        if value is not None:
            jax.config.update(name, value)
    if found["index"] != 0:
        listening.close()
    addresses = [(host, port) for host, port in found["first"]["addresses"]]
    return Job(found["index"], found["count"], addresses, found["first"]["token"], listening)


def _own_names() -> list[str]:
    """Addresses at which other machines may reach this one: that of its route to others, and its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing. It is an address for documentation.
            return [probe.getsockname()[0], socket.gethostname()]
        except OSError:
            return [socket.gethostname(), "127.0.0.1"]
