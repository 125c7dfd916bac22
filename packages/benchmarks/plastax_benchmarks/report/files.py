"""Files of a report: written as a whole or not at all."""

from pathlib import Path


def write_file(path: Path, data: bytes) -> None:
    """Puts a file in its place when all of it is on the disk. If that fails, the `OSError` says what is safe."""
    from ..runs._files import write_atomic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error.strerror}). The numbers of all runs are safe: free some space, or "
            "make the folder writable, and run the same command again"
        ) from error
