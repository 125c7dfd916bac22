"""One process at a time in a folder. The kernel releases the lock when its holder ends, even if it is killed."""

import fcntl
import os
import socket
from pathlib import Path

from ._errors import RunBusy, RunError


def take_lock(folder: Path) -> int:
    """Locks the folder's file `lock`.

    **Returns:** the descriptor that holds the lock until it is closed.
    """
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{folder} cannot be used ({error.strerror}): choose another folder (--out)") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder = f"pid {os.getpid()} on {socket.gethostname()}\n".encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder, 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise RunBusy(
            f"{folder} is in use by {holder}: wait until it has finished, or choose another folder (--out)"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise RunError(
            f"{folder} cannot be locked ({error.strerror}), so a second run could write to it unnoticed: "
            "choose a folder on another disk (--out)"
        ) from error
    return descriptor
