"""Continual text: predict the next byte, with another vocabulary or another text in each task."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32, PRNGKeyArray, UInt8

from ..data import Section, Text
from .catalog import ContinualTextSettings
from .stream import Examples, Loss, Problem, RowIndices, Task, all_rows, permutation


class TextData(NamedTuple):
    """A text on the device.

    - `content`: all bytes.
    - `symbols`: for each byte, its place among those that occur.
    - `train`, `test`: where the windows of training and held-out rows start, section after section.
    """

    content: UInt8[Array, " bytes"]
    symbols: Int[Array, "256"]
    train: Int[Array, " train"]
    test: Int[Array, " test"]


@dataclass(frozen=True)
class ContinualText(Problem):
    """Windows of `context` + 1 bytes: the inputs are the first ones, and the targets are the bytes that follow them.

    A token is a byte that occurs in the text, with a number that depends on the task. In `change="vocabulary"` each
    task draws new numbers, and new windows of the whole text. In `change="text"` each task has a section of its own,
    and numbers stay.
    """

    input_shape: tuple[int, ...]
    outputs: int
    sections: int | None
    train_rows: int
    test_rows: int
    loss: Loss = "cross_entropy"
    input_dtype = jnp.int32

    def task(self, data: TextData, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """The rows of a task, and the number of each symbol."""
        if self.sections is None:
            order_key, row_key = jax.random.split(jax.random.fold_in(key, number))
            rows = permutation(row_key, len(data.train))[: self.train_rows]
            train = RowIndices(rows, jnp.asarray(self.train_rows, jnp.int32))
            return Task(train, all_rows(self.test_rows), permutation(order_key, self.outputs))
        # In a random order. When all sections have been used, a new order starts.
        order = permutation(jax.random.fold_in(key, number // self.sections), self.sections)
        section = order[number % self.sections]
        train, test = (
            RowIndices(section * each + jnp.arange(each, dtype=jnp.int32), jnp.asarray(each, jnp.int32))
            for each in (self.train_rows, self.test_rows)
        )
        return Task(train, test, jnp.arange(self.outputs, dtype=jnp.int32))

    def examples(self, data: TextData, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Windows of the text as numbers, and the numbers that follow."""
        starts = (data.test if held_out else data.train)[rows]
        places = starts[:, None] + jnp.arange(self.input_shape[0] + 1, dtype=jnp.int32)
        tokens = task.view[data.symbols[data.content[places].astype(jnp.int32)]]
        return Examples(tokens[:, :-1], tokens[:, 1:])

    def train_count(self, number: int) -> int:
        """The number of training rows, which is the same in every task."""
        return self.train_rows


class Windows(NamedTuple):
    """Where the windows of a section start, within the section."""

    train: Int32[np.ndarray, " train"]
    test: Int32[np.ndarray, " test"]


def windows_of(section: Section, context: int) -> Windows:
    """Windows that follow one another, of which every tenth is held out.

    The last byte of a window, which is only a target, is the first of the next one. Every tenth, and not the last
    tenth, so that both parts are about the same things.
    """
    starts = np.arange((len(section.content) - 1) // context, dtype=np.int32) * context
    held_out = np.arange(len(starts)) % 10 == 9
    return Windows(starts[~held_out], starts[held_out])


def make(settings: ContinualTextSettings, text: Text) -> tuple[ContinualText, TextData]:
    """The problem and its data."""
    windows = [windows_of(section, settings.context) for section in text.sections]
    ends = np.cumsum([len(section.content) for section in text.sections])
    offsets = np.concatenate([[0], ends[:-1]]).astype(np.int32)
    content = np.frombuffer(b"".join(section.content for section in text.sections), np.uint8)
    if settings.change == "text":
        chosen, train_rows, test_rows = _whole_sections(settings, text, windows)
        parts = [(offsets[i] + windows[i].train[:train_rows], offsets[i] + windows[i].test[:test_rows]) for i in chosen]
        sections = len(chosen)
    else:
        parts = [(start + own.train, start + own.test) for start, own in zip(offsets, windows, strict=True)]
        sections = None
        train_rows = _size("--train-size", settings.train_size, sum(len(part[0]) for part in parts), text)
        test_rows = _size("--test-size", settings.test_size, sum(len(part[1]) for part in parts), text)
    train, test = (np.concatenate(each) for each in zip(*parts, strict=True))
    if sections is None:
        # The same held-out rows in all tasks, spread over the text.
        test = test[np.linspace(0, len(test) - 1, test_rows).astype(np.int64)]
    used = np.unique(content)
    symbols = np.zeros(256, np.int32)
    symbols[used] = np.arange(len(used))
    data = TextData(*map(jnp.asarray, (content, symbols, train.astype(np.int32), test.astype(np.int32))))
    return ContinualText((settings.context,), len(used), sections, train_rows, test_rows), data


def _whole_sections(settings: ContinualTextSettings, text: Text, windows: list[Windows]) -> tuple[list[int], int, int]:
    """The sections that are long enough, and the number of training and held-out rows that each of them has.

    Without `--train-size`, half of the sections are long enough, and have as many rows as the shortest of them.
    Without `--test-size`, all have as many held-out rows as the one with the fewest: at least a ninth of their training
    rows, rounded down.
    """
    lengths = [len(own.train) for own in windows]
    train_rows = settings.train_size or int(np.median(lengths))
    long_enough = [
        i
        for i, own in enumerate(windows)
        if len(own.train) >= max(1, train_rows) and len(own.test) >= (settings.test_size or 1)
    ]
    if len(long_enough) < 2:
        raise ValueError(
            f"with --change text, at least two sections need {max(1, train_rows)} training rows and "
            f"{settings.test_size or 1} held-out rows of {settings.context} bytes, but {len(long_enough)} of the "
            f"{len(windows)} sections of {text.source} do: lower --train-size, --test-size or --context, or raise "
            "--text-size"
        )
    if len(long_enough) < settings.num_tasks:
        more = ", or raise --text-size" if text.size >= settings.text_size else ""
        warnings.warn(
            f"there are {len(long_enough)} sections with {max(1, train_rows)} training rows of {settings.context} "
            f"bytes in {text.source}, so the {settings.num_tasks} tasks repeat them: lower --num-tasks, --train-size "
            f"or --context{more}",
            stacklevel=3,
        )
    test_rows = settings.test_size or min(len(windows[i].test) for i in long_enough)
    return long_enough, max(1, train_rows), test_rows


def _size(flag: str, wanted: int | None, there: int, text: Text) -> int:
    """The number of rows to use."""
    if there == 0 or (wanted is not None and wanted > there):
        raise ValueError(
            f"{flag} {'' if wanted is None else f'{wanted} '}needs more text than the {text.size} bytes of "
            f"{text.source}, which have {there} such rows: lower it, or --context, or raise --text-size"
        )
    return there if wanted is None else wanted
