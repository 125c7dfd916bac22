"""The Ray engine: workers on all machines of a cluster, which share the folder of the sweep.

Ray schedules the requests. Retries are up to the sweep, as on one machine: a worker that dies is replaced, wherever Ray
has room, and its job resumes from its checkpoint.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import UsageError
from .engine import threads


class RayEngine:
    """Workers on a Ray cluster.

    **Arguments:**

    - `folder`: of the sweep, at a path that all machines see; `None` if nothing is written, as in a dry run.
    - `address`: `"auto"` for the cluster of this machine or of `$RAY_ADDRESS`, `"local"` to start one on this machine,
        or the address of a cluster.
    - `cpus`, `gpus`: what each worker reserves. Its threads are limited to `cpus`.
    """

    def __init__(self, folder: Path | None, address: str, cpus: int, gpus: float):
        import ray

        self._ray, self._cpus, self._gpus = ray, cpus, gpus
        self._names: dict[Any, str] = {}
        _connect(ray, address)
        try:
            self._check_room()
            self._check_nodes(folder)
        except BaseException:
            ray.shutdown()
            raise

    @property
    def at_once(self) -> int:
        """The number of workers that the cluster has room for now."""
        resources = self._ray.cluster_resources()
        rooms = [resources.get("CPU", 0) // self._cpus]
        if self._gpus:
            rooms.append(resources.get("GPU", 0) // self._gpus)
        return max(1, int(min(rooms)))

    @property
    def sharing(self) -> int:
        """The largest number of workers that share the memory of a machine, or of a GPU."""
        if self._gpus:
            return max(1, int(1 / self._gpus))
        return max([1, *(int(node["Resources"].get("CPU", 0) // self._cpus) for node in self._nodes())])

    def submit(self, name: str, request: Mapping[str, Any]) -> None:
        """Queues a request."""
        # A process for each request, which returns all memory when it ends.
        work = self._ray.remote(max_calls=1, max_retries=0, num_cpus=self._cpus, num_gpus=self._gpus)(_serve)
        work = work.options(name=name, runtime_env={"env_vars": self._environment()})
        self._names[work.remote(dict(request), fingerprint())] = name

    def wait(self, seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """The replies that arrive within some time."""
        if not self._names:
            return []
        ready, _ = self._ray.wait(list(self._names), num_returns=1, timeout=seconds)
        replies = []
        for reference in ready:
            name = self._names.pop(reference)
            try:
                replies.append((name, self._ray.get(reference)))
            except self._ray.exceptions.OutOfMemoryError as error:
                replies.append((name, {"outcome": {"kind": "memory", "failed": _first_line(error)}}))
            except self._ray.exceptions.RayTaskError as error:
                replies.append((name, {"outcome": {"kind": "error", "failed": _last_line(error)}}))
            except self._ray.exceptions.RayError as error:  # The worker or its machine has died.
                replies.append((name, {"killed": f"the worker died ({_first_line(error)})"}))
        return replies

    def running(self) -> set[str]:
        """The names of requests that Ray has not answered yet. Some of them may be waiting for room."""
        return set(self._names.values())

    def stop(self) -> None:
        """Cancels all requests and leaves the cluster. Jobs save their state first."""
        if not self._ray.is_initialized():
            return
        for reference in self._names:
            self._ray.cancel(reference)
        if self._names:
            self._ray.wait(list(self._names), num_returns=len(self._names), timeout=60)
        self._names.clear()
        self._ray.shutdown()

    def _environment(self) -> dict[str, str]:
        """Variables of the workers: their threads, and what this process has set for jax."""
        mine = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "PLASTAX_"))}
        if 0 < self._gpus < 1:  # Several workers share a GPU, of which jax would reserve three quarters for each.
            mine.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * self._gpus:.3f}")
        return mine | threads(self._cpus)

    def _check_room(self) -> None:
        have = self._ray.cluster_resources()
        for name, wanted in (("CPU", self._cpus), ("GPU", self._gpus)):
            most = max((node["Resources"].get(name, 0) for node in self._nodes()), default=0)
            if wanted > most:
                raise UsageError(
                    f"--{name.lower()}s {wanted:g} is more than any machine of the cluster has ({most:g} {name}s; "
                    f"{have.get(name, 0):g} in all): use {most:g} or less"
                )

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _check_nodes(self, folder: Path | None) -> None:
        """Checks on each machine, before any work, that it sees the folder and has the same versions."""
        word = uuid.uuid4().hex
        file = None if folder is None else folder.absolute() / f".seen-{word}"
        if file is not None:
            file.write_text(word)
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        try:
            for node in self._nodes():
                check = self._ray.remote(_look).options(
                    num_cpus=0, scheduling_strategy=strategy(node["NodeID"], soft=False)
                )
                try:
                    wrong = self._ray.get(check.remote(file, word, fingerprint()), timeout=120)
                except self._ray.exceptions.RayTaskError as error:  # The function itself cannot be imported.
                    wrong = f"has no plastax that works ({_last_line(error)}): install the same version on all machines"
                if wrong:
                    raise UsageError(f"machine {node['NodeManagerHostname']} {wrong}")
        finally:
            if file is not None:
                file.unlink(missing_ok=True)


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if address == "local":
        ray.init(address="local", **quiet)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdecimal():  # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        del quiet["include_dashboard"]  # Only for a cluster that is started here.
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"no Ray cluster at --address {address} ({_first_line(error)}): start one with `ray start --head`, name "
            "its HOST:PORT, or use --address local"
        ) from error


def fingerprint() -> dict[str, str]:
    """What must be equal on all machines: the versions of plastax, jax and Python, and the code of plastax."""
    digest = hashlib.sha256()
    for package in ("plastax", "plastax_benchmarks", "plastax_diagnostics", "plastax_kernels"):
        spec = importlib.util.find_spec(package)  # Without importing jax.
        for place in [] if spec is None else spec.submodule_search_locations or []:
            for file in sorted(Path(place).rglob("*.py")):
                digest.update(file.relative_to(place).as_posix().encode() + b"\0" + file.read_bytes())
    try:
        version = importlib.metadata.version("plastax")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed)"
    return {
        "plastax": version,
        "jax": importlib.metadata.version("jax"),
        "jaxlib": importlib.metadata.version("jaxlib"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "the code of plastax": digest.hexdigest()[:12],
    }


def _look(file: Path | None, word: str, mine: dict[str, str]) -> str | None:
    """On a worker: what is wrong with it, in words that follow its name."""
    try:
        seen = word if file is None else file.read_text()
    except OSError:
        seen = ""
    if seen != word:
        assert file is not None
        return f"does not see {file.parent}: choose a folder that all machines of the cluster share (--out)"
    return _difference(mine, fingerprint())


def _difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    different = [f"{name} {theirs[name]} (here {mine[name]})" for name in mine if mine[name] != theirs.get(name)]
    if not different:
        return None
    return f"has other versions: {', '.join(different)}. Install the same version on all machines"


def _serve(request: dict[str, Any], mine: dict[str, str]) -> dict[str, Any]:
    """On a worker: the reply to a request. A machine that joined later is checked here."""
    from .worker import serve

    wrong = _difference(mine, fingerprint())
    if wrong:
        return {"outcome": {"kind": "stopped", "failed": f"machine {socket.gethostname()} {wrong}"}}
    return serve(request)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _last_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1][:300]
