"""Files of a report, written completely or not at all."""

from pathlib import Path


def write_file(path: Path, data: bytes) -> None:
    """Writes a file and moves it to its place when it is complete. On failure, the `OSError` explains what is safe."""
    from ..runs._files import write_atomic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error.strerror}). The numbers of all runs are safe: free some space, or "
            "make the folder writable, and run the same command again"
        ) from error
