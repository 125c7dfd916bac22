"""Files that are there as a whole or not at all, even when the power fails."""

import os
import uuid
from pathlib import Path


TEMPORARY = ".tmp-"


def temporary_beside(path: Path) -> Path:
    """A name in the same folder that no other attempt uses, and that is recognised as a leftover later."""
    return path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")


def flush(path: Path) -> None:
    """Puts a file's content, or a folder's list of names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Puts a folder with all that is in it on the disk."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            flush(Path(parent, name))
        flush(Path(parent))


def write_all(descriptor: int, data: bytes) -> None:
    """One write where the system takes it all; a nearly full disk takes a part first and fails at the next."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomic(path: Path, data: bytes) -> None:
    """The old content or the new one is in place at any moment, never a mixture."""
    temporary = temporary_beside(path)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
        flush(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
