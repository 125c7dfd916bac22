"""Files that are written completely or not at all, even if the power fails."""

import os
import uuid
from pathlib import Path


TEMPORARY = ".tmp-"


def temporary_beside(path: Path) -> Path:
    """A unique temporary name in the same folder, which is later recognized as a leftover."""
    return path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")


def flush(path: Path) -> None:
    """Syncs a file's content, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Syncs a folder with all its content to disk."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            flush(Path(parent, name))
        flush(Path(parent))


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all data. Usually this is one write; a nearly full disk accepts a part, and the next write fails."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomic(path: Path, data: bytes) -> None:
    """Replaces a file atomically: at any moment it has the old or the new content, never a mixture."""
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
