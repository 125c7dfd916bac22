"""Messages between the processes of a job, over TCP: process 0 has a connection to each of the others.

JAX's own runtime for several processes is not used for this, for three reasons: it aborts a process with a C++ stack
trace as soon as another one has died, its collectives need the memory of the devices and equally many of them in each
process, and orbax expects all processes to take part in a checkpoint. Here every process uses JAX as if it were alone.

A message is a value that JSON supports, and arrays. There is no authentication (as in JAX's runtime), so messages are
never unpickled: a stranger could disturb a run, but not execute code.
"""

import contextlib
import json
import math
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._errors import UsageError


_HEADER = struct.Struct("!cQ")
_MESSAGE, _ENDED, _DONE = b"m", b"e", b"d"
_PIECE = 2**24


class Package(NamedTuple):
    """The content of a message: a value that JSON supports, and arrays."""

    value: Any
    arrays: Sequence[np.ndarray] = ()


class Lost(Exception):
    """The other process has ended."""


class End(NamedTuple):
    """Which process has ended too early, and why if that is known."""

    process: int
    reason: str | None


class Connection:
    """A connection to another process. A thread reads it, so that the end of the other process is noticed at once."""

    def __init__(self, connected: socket.socket):
        # The kernel closes the connection when a process ends. If a whole machine disappears, these options of the
        # socket find out within 30 seconds; the last one if data is under way.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {
            "TCP_NODELAY": 1,
            "TCP_KEEPIDLE": 10,
            "TCP_KEEPINTVL": 5,
            "TCP_KEEPCNT": 3,
            "TCP_USER_TIMEOUT": 30_000,
        }
        for name, value in options.items():
            if hasattr(socket, name):  # Not all systems have all of them.
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connected.settimeout(None)
        self._socket = connected
        self._sending = threading.Lock()
        self._reader: threading.Thread | None = None
        self._received: queue.SimpleQueue[Package | None] = queue.SimpleQueue()
        self.finished = threading.Event()

    def send(self, package: Package) -> None:
        """Sends a message."""
        arrays = [np.ascontiguousarray(array) for array in package.arrays]
        about = [[str(array.dtype), list(array.shape)] for array in arrays]
        head = json.dumps([package.value, about]).encode()
        parts = [struct.pack("!Q", len(head)) + head, *(array.reshape(-1).view(np.uint8).data for array in arrays)]
        try:
            self._write(_MESSAGE, parts)
        except OSError as error:
            raise Lost from error

    def receive(self) -> Package:
        """The next message. Raises `Lost` if the other process ends instead."""
        package = self._received.get()
        if package is None:
            self._received.put(None)  # For all later calls, too.
            raise Lost
        return package

    def end(self, early: End | None) -> None:
        """Announces that this process ends: because all is done (`None`), or because some process had to end early."""
        with contextlib.suppress(OSError):  # The other process may have ended already.
            self._write(_DONE if early is None else _ENDED, [json.dumps(early).encode()])

    def close(self, seconds: float) -> None:
        """Closes the connection.

        **Arguments:**

        - `seconds`: how long to wait for the end of the other process. What it still sends must be read, or the kernel
            would reset the connection, and the other might lose the reason why this process ends.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if self._reader is not None:
            self._reader.join(seconds)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
        self._socket.close()

    def watch(self, process: int, lost: Callable[[End], None]) -> None:
        """Reads until the other process ends. Calls `lost` if it has not announced that all is done.

        **Arguments:**

        - `process`: the index of the other process.
        - `lost`: called in the thread that reads, before `receive` raises.
        """

        def read() -> None:
            early = End(process, None)
            try:
                while True:
                    kind, size = _HEADER.unpack(self._read(_HEADER.size))
                    content = self._read(size)
                    if kind != _MESSAGE:
                        break
                    self._received.put(_decode(content))
                if kind == _DONE:
                    self.finished.set()
                else:
                    early = End(*json.loads(content))
            except (OSError, EOFError):
                pass
            if not self.finished.is_set():
                lost(early)
            self._received.put(None)

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()

    def _write(self, kind: bytes, parts: Sequence[bytes | memoryview]) -> None:
        with self._sending:
            self._socket.sendall(_HEADER.pack(kind, sum(map(len, parts))))
            for part in parts:
                self._socket.sendall(part)

    def _read(self, size: int) -> bytearray:
        content = bytearray(size)
        view, done = memoryview(content), 0
        while done < size:
            count = self._socket.recv_into(view[done : done + _PIECE])
            if count == 0:
                raise EOFError
            done += count
        return content


def _decode(content: bytearray) -> Package:
    start = struct.unpack_from("!Q", content)[0] + 8
    value, about = json.loads(content[8:start])
    arrays = []
    for name, shape in about:
        dtype = jnp.dtype(name)
        arrays.append(np.frombuffer(content, dtype, math.prod(shape), start).reshape(shape))
        start += math.prod(shape) * dtype.itemsize
    return Package(value, arrays)


def accept(listening: socket.socket, count: int, token: str, seconds: float) -> list[Connection]:
    """Process 0: waits for all others. Returns the connections to processes 1, 2, ...

    **Arguments:**

    - `listening`: the socket to which they connect.
    - `count`: the number of processes.
    - `token`: what all processes of this job have in common.
    - `seconds`: how long to wait.
    """
    found: dict[int, socket.socket] = {}
    end = time.monotonic() + seconds
    while len(found) < count - 1:
        listening.settimeout(max(0.01, end - time.monotonic()))
        try:
            connected, _ = listening.accept()
        except TimeoutError:
            for connected in found.values():
                connected.close()
            missing = ", ".join(str(i) for i in range(1, count) if i not in found)
            raise UsageError(
                f"{len(found) + 1} of {count} processes were there after {seconds:.0f} s, without process {missing}: "
                f"start all {count} processes, with the same --coordinator-address and --num-processes"
            ) from None
        connected.settimeout(10)
        try:
            with connected.makefile("rb") as file:
                index, theirs, word = json.loads(file.readline(1000))
            refusal = _refusal(index, theirs, word, found, count, token)
            connected.sendall(json.dumps(refusal).encode() + b"\n")
        except (OSError, ValueError, TypeError):
            connected.close()  # Something else has connected to this port.
            continue
        if refusal is None:
            found[index] = connected
        else:
            connected.close()
    return [Connection(found[i]) for i in range(1, count)]


def _refusal(index: int, theirs: int, word: str, found: dict[int, socket.socket], count: int, token: str) -> str | None:
    if word != token:
        return "another job uses this port: choose another --coordinator-address"
    if theirs != count:
        return f"process 0 was started with --num-processes {count}, and process {index} with {theirs}"
    if index in found or index == 0:
        return f"there are two processes with --process-id {index}: each needs a number of its own"
    return None


def connect(addresses: Sequence[tuple[str, int]], index: int, count: int, token: str, seconds: float) -> Connection:
    """All other processes: connects to process 0, which may still have to start.

    **Arguments:**

    - `addresses`: where process 0 may be: the first that answers is used.
    - `index`, `count`: the index of this process, and the number of processes.
    - `token`, `seconds`: as in `accept`.
    """
    end, reason = time.monotonic() + seconds, "no answer"
    while time.monotonic() < end:
        for address in addresses:
            try:
                connected = socket.create_connection(address, timeout=10)
            except OSError as error:
                reason = str(error)
                continue
            try:
                connected.sendall(json.dumps([index, count, token]).encode() + b"\n")
                # Unbuffered, since more may follow the answer.
                with connected.makefile("rb", buffering=0) as file:
                    answer = json.loads(file.readline(10000))
            except (OSError, ValueError) as error:
                reason = str(error)
                connected.close()
                continue
            if answer is None:
                return Connection(connected)
            connected.close()
            raise UsageError(str(answer))
        time.sleep(0.2)
    names = " or ".join(f"{host}:{port}" for host, port in addresses)
    raise UsageError(
        f"process {index} did not reach process 0 at {names} within {seconds:.0f} s ({reason}): start process 0, and "
        "check --coordinator-address, which must be an address of its machine that this one can reach"
    )
