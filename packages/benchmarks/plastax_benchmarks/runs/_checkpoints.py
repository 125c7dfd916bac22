"""Checkpoints: one folder each, which is complete as soon as it has its final name.

`checkpoints/12/arrays` is written by orbax, `checkpoints/12/checkpoint.json` describes it: the step, the
lengths of the streams at that moment, the checksum of every file, and shape, type and checksum of every array. All of
it is written under a temporary name, synced to disk, and renamed. A step that is saved again becomes `12.1`, so that
`12` stays until the new one is complete.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._errors import RunError, RunStopped
from ._files import TEMPORARY, flush, flush_tree, temporary_beside, write_atomic
from ._trees import Leaf, Stored, flatten, mismatch, pack, unflatten, unpack


CORRUPT = ".corrupt"


class Saved(NamedTuple):
    """The content of `checkpoint.json`."""

    step: int
    streams: dict[str, int]
    files: dict[str, str]
    arrays: list[Stored]


@functools.cache
def _orbax():
    import orbax.checkpoint  # This import takes half a second.
    from etils import epath  # Orbax's own type of paths.

    # Without its `Checkpointer`, which makes the folder of arrays atomic: here the folder around it is atomic.
    handler = orbax.checkpoint.PyTreeCheckpointHandler(use_ocdbt=False, use_compression=False)
    return orbax.checkpoint, handler, epath.Path


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides tracebacks of orbax's threads, which it logs before it raises: one error is enough."""
    logger = logging.getLogger("absl")

    def drop(record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


def _write_arrays(folder: Path, arrays: Sequence[np.ndarray]) -> None:
    # Orbax has a large overhead per array, and rejects empty arrays and empty trees.
    packed = pack(arrays)
    folder.mkdir()
    if packed:
        orbax, handler, as_path = _orbax()
        with _quiet():
            handler.save(as_path(folder.absolute()), args=orbax.args.PyTreeSave(packed))


def _read_arrays(folder: Path, stored: Sequence[Stored]) -> list[np.ndarray]:
    names = sorted({one.dtype for one in stored if 0 not in one.shape})
    packed = {}
    if names:
        orbax, handler, as_path = _orbax()
        as_numpy = {name: orbax.RestoreArgs(restore_type=np.ndarray) for name in names}
        with _quiet():
            packed = handler.restore(as_path(folder.absolute()), args=orbax.args.PyTreeRestore(restore_args=as_numpy))
    return unpack(packed, stored)


def _encode(saved: Saved) -> bytes:
    arrays = [{**one._asdict(), "leaf": one.leaf._asdict()} for one in saved.arrays]
    content = json.dumps({**saved._asdict(), "arrays": arrays})
    return json.dumps({"sha256": hashlib.sha256(content.encode()).hexdigest(), "checkpoint": content}).encode()


def _decode(data: bytes) -> Saved:
    outer = json.loads(data)
    if hashlib.sha256(outer["checkpoint"].encode()).hexdigest() != outer["sha256"]:
        raise ValueError("the checksum of checkpoint.json is wrong")
    inner = json.loads(outer["checkpoint"])
    return Saved(**{**inner, "arrays": [Stored(**{**one, "leaf": Leaf(**one["leaf"])}) for one in inner["arrays"]]})


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file_digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _file_digest(path) for path in files}


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Checks files before orbax reads them, since orbax logs errors when a read fails."""
    for name, digest_then in digests.items():
        if _file_digest(folder / name) != digest_then:
            raise ValueError(f"the checksum of {name} is wrong")


def _order(folder: Path) -> tuple[int, int] | None:
    step, _, attempt = folder.name.partition(".")
    return (int(step), int(attempt or 0)) if step.isdecimal() and (attempt.isdecimal() or not attempt) else None


class Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, folder: Path, keep: int, log: Callable[[str], None]):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.folder, self.keep, self.log = folder, keep, log

    def existing(self) -> list[Path]:
        """The complete checkpoints, the newest first."""
        if not self.folder.exists():
            return []
        found = [path for path in self.folder.iterdir() if _order(path) is not None]
        return sorted(found, key=lambda path: _order(path) or (0, 0), reverse=True)

    def save(self, step: int, tree: Any, streams: Mapping[str, int]) -> None:
        """Saves the tree, and removes the oldest checkpoints beyond `keep`."""
        if step < 0:
            raise ValueError(f"step must not be negative, got {step}")
        stored, arrays = flatten(tree)
        attempts = [order[1] for path in self.existing() if (order := _order(path)) is not None and order[0] == step]
        path = self.folder / (f"{step}.{max(attempts) + 1}" if attempts else str(step))
        temporary = temporary_beside(path)
        try:
            temporary.mkdir(parents=True)
            _write_arrays(temporary / "arrays", arrays)
            saved = Saved(step, dict(streams), _file_digests(temporary), stored)
            write_atomic(temporary / "checkpoint.json", _encode(saved))
            flush_tree(temporary)
            temporary.rename(path)
            flush(self.folder)
        except (OSError, ValueError) as error:  # Orbax raises a ValueError if the disk is full.
            shutil.rmtree(temporary, ignore_errors=True)
            raise RunStopped(
                f"step {step} could not be saved in {self.folder} ({_in_words(error)}). {self._what_is_left()}: "
                "free some space and run the same command again"
            ) from error
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._clean(keep=self.keep)

    def _what_is_left(self) -> str:
        names = [path.name for path in self.existing()]
        return f"The checkpoints before it ({', '.join(names)}) are intact" if names else "Earlier ones do not exist"

    def _clean(self, keep: int | None) -> None:
        old = [] if keep is None else self.existing()[keep:]
        # The oldest first: a kill in between leaves the newest ones. The rest is removed the next time.
        for path in reversed(old):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.iterdir() if self.folder.exists() else ():
            if path.name.startswith(TEMPORARY) or (keep is not None and path.name.endswith(CORRUPT)):
                shutil.rmtree(path, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Removes the remains of a killed save."""
        self._clean(keep=None)

    def restore(self, target: Any) -> tuple[Saved, Any] | None:
        """The newest checkpoint that can be read, in the shape of the target; `None` if there are no checkpoints.

        Newer ones that cannot be read are renamed.
        """
        found = self.read(target)
        if found is None:
            return None
        saved, tree, broken = found
        self._set_aside(broken, saved.step)
        return saved, tree

    def read(self, target: Any) -> tuple[Saved, Any, list[tuple[Path, str]]] | None:
        """The same, with newer ones that cannot be read and the reasons. It changes nothing, so it needs no lock."""
        broken: list[tuple[Path, str]] = []
        for path in self.existing():
            try:
                saved = _decode((path / "checkpoint.json").read_bytes())
            except (ValueError, KeyError, TypeError, OSError) as error:
                broken.append((path, _in_words(error)))
                continue
            if problem := mismatch(saved.arrays, target):
                raise RunError(
                    f"{path} was saved by another program: {problem}. Use the version of plastax that wrote it, "
                    "or choose another folder (--out)"
                )
            try:
                _check_files(path, saved.files)
                arrays = _read_arrays(path / "arrays", saved.arrays)
            except MemoryError:
                raise
            except Exception as error:  # Any error of orbax for files that are truncated, changed or missing.
                broken.append((path, _in_words(error)))
                continue
            return saved, unflatten(arrays, target), broken
        if broken:
            reasons = "\n".join(f"  {path.name}: {reason}" for path, reason in broken)
            raise RunError(
                f"no checkpoint in {self.folder} can be read:\n{reasons}\n"
                "Restore one from a backup, or delete that folder to start over: the metrics, which are intact, "
                "are then renamed to metrics.jsonl.1."
            )
        return None

    def _set_aside(self, broken: Sequence[tuple[Path, str]], step: int) -> None:
        for path, reason in broken:
            self.log(f"{path} is broken ({reason}): resuming from step {step}, which was saved before it")
            aside = path.with_name(path.name + CORRUPT)
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


def read_checkpoint(path: str | os.PathLike[str], target: Any) -> tuple[int, Any] | None:
    """Reads the newest intact checkpoint of a run, which may still be running and is not disturbed.

    **Arguments:**

    - `path`: the folder of the run.
    - `target`: a tree like the saved one, of arrays or of `jax.ShapeDtypeStruct`.

    **Returns:** the step and the tree, on the default device; `None` if nothing has been saved yet.
    """
    found = Checkpoints(Path(path) / "checkpoints", keep=1, log=lambda _: None).read(target)
    return None if found is None else (found[0].step, found[1])


def _in_words(error: Exception) -> str:
    code = re.search(r"os_error_code='(\d+)'", str(error))  # The error is in the middle of a long message of orbax.
    if code:
        return os.strerror(int(code[1]))
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return first if len(first) <= 200 else first[:200] + "..."
