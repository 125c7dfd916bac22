"""TensorBoard: event files in the run folder."""

import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .base import Logger, Point


SUFFIX = ".plastax"
"""Marks our event files, which are replaced when a run is resumed."""


class TensorBoard(Logger):
    """A folder with one event file for each member: `tensorboard/seed0`, ..."""

    title: ClassVar = "TensorBoard"
    package: ClassVar = "tensorboardX"

    def __init__(self, folder: Path, config: Mapping[str, Any], members: Mapping[str, Mapping[str, Any]]):
        # `tensorboardX.SummaryWriter` writes in a thread, which ends when the disk is full. Then the run would wait
        # forever. This is the writer below it.
        from tensorboardX.record_writer import RecordWriter

        place = folder / "tensorboard"
        self.words = f"`tensorboard --logdir {place}` shows the curves"
        self._writers: dict[str, RecordWriter] = {}
        for old in place.glob(f"*/*{SUFFIX}"):
            old.unlink()
        # A new name, for a TensorBoard that is reading the old file.
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}{SUFFIX}"
        for member in members:
            (place / member).mkdir(parents=True, exist_ok=True)
            self._writers[member] = RecordWriter(str(place / member / name))
            self._write(member, 0, file_version="brain.Event:2")
            # A TensorBoard that is already open forgets the points of the old file.
            self._write(member, 0, session_log={"status": "START"})

    def log(self, points: Sequence[Point]) -> None:
        """Writes one event for each point. All are on disk when it returns."""
        for point in points:
            values = [{"tag": tag, "simple_value": value} for tag, value in point.values.items()]
            self._write(point.member, point.number, summary={"value": values})
        for member in {point.member for point in points}:
            self._writers[member].flush()

    def _write(self, member: str, step: int, **content: Any) -> None:
        from tensorboardX.proto import event_pb2

        event = event_pb2.Event(wall_time=time.time(), step=step, **content)  # pyright: ignore[reportAttributeAccessIssue]
        self._writers[member].write(event.SerializeToString())

    def close(self, *, failed: bool) -> None:
        """Closes the files."""
        for writer in self._writers.values():
            writer.close()

    def abandon(self) -> None:
        """Closes the files, which tries once more to write what is left."""
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()
