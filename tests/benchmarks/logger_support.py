"""Reads what loggers have written, and what they should have written."""

import json
import struct
from pathlib import Path

import numpy as np
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c
from waiting import wait_for

from plastax_benchmarks.runs import read_stream


def expected_points(folder, swept=(), window=0):
    """All numbers in the rows of a run folder: `{(member, tag, number): value}`. Diagnostics are `window` later."""
    points = {}
    for stream in ("metrics", "diagnostics"):
        file = Path(folder) / f"{stream}.jsonl"
        for row in read_stream(file) if file.exists() else []:
            member = "-".join([f"seed{row['seed']}", *(f"{name}-{row[name]:g}" for name in swept)])
            number = row.get("step", row.get("task"))
            prefix = ""  # Of the tags.
            if stream == "diagnostics":
                number += window
                prefix = f"diagnostics/{row['when']}/{row['rows']}/"
                prefix += f"{row['network']}/" if "network" in row else ""
            for name in row.keys() - {"task", "step", "seed", "when", "rows", "network", *swept}:
                parts = row[name] if isinstance(row[name], dict) else {None: row[name]}
                for part, value in parts.items():
                    if value is not None:
                        points[member, f"{prefix}{name}" + (f"/{part}" if part else ""), number] = float(value)
    return points


def events_of(folder):
    """The points in the event files of a run folder. Refuses broken records, and two points in one place."""
    points = {}
    for member in (Path(folder) / "tensorboard").iterdir():
        (file,) = member.iterdir()
        for event in map(Event.FromString, _records(file.read_bytes())):
            for value in event.summary.value:
                place = member.name, value.tag, event.step
                assert place not in points
                points[place] = value.simple_value
    return points


def _records(data):
    while data:
        header, (length,) = data[:8], struct.unpack("<Q", data[:8])
        content = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12]) == (masked_crc32c(header),)
        assert struct.unpack("<I", data[12 + length : 16 + length]) == (masked_crc32c(content),)
        yield content
        data = data[16 + length :]


def assert_in_tensorboard(folder, swept=()):
    """The event files have all numbers of the rows, as float32, each of them once."""
    expected = expected_points(folder, swept)
    assert expected
    assert events_of(folder) == {place: np.float32(value) for place, value in expected.items()}


class OfflineRun:
    """A run of Weights & Biases in its file on the disk."""

    def __init__(self, path):
        from wandb.proto.wandb_internal_pb2 import Record

        self.history, self.config, self.complete = [], {}, False
        for record in map(Record.FromString, _log_records(path.read_bytes())):
            match record.WhichOneof("record_type"):
                case "run":
                    self.name, self.group, self.project = (
                        record.run.display_name,
                        record.run.run_group,
                        record.run.project,
                    )
                    self.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
                case "history":
                    items = [(item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item]
                    self.history.append({key: json.loads(value) for key, value in items})
                case "exit":
                    self.complete = True


def _log_records(data):
    """The records of a log in LevelDB's format: blocks of 32 KiB; a record has a checksum, a length and a kind."""
    assert data[:4] == b":W&B"
    place, record = 7, b""
    while place < len(data):
        left = 32768 - place % 32768
        if left < 7:  # The rest of a block is empty.
            place += left
            continue
        if len(data) < place + 7:
            return  # It is being written.
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        if len(data) < place + 7 + length:
            return
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # Complete, or the last part.
            yield record
            record = b""


def complete_run(file):
    """The offline run in a file. Another process writes it, and may finish after the run."""
    wait_for(lambda: OfflineRun(file).complete)
    return OfflineRun(file)


def offline_runs(folder):
    """The offline runs in a run folder, by name."""
    runs = list(map(complete_run, (Path(folder) / "wandb").glob("offline-run-*/*.wandb")))
    assert len({run.name for run in runs}) == len(runs)
    return {run.name: run for run in runs}


def assert_in_wandb(folder, swept=(), window=0):
    """The offline runs have all numbers of the rows, each of them once. Diagnostics are in the line of their window."""
    metrics, found = {}, set()
    for name, run in offline_runs(folder).items():
        for line in run.history:
            number = line["_step"]
            assert number == line.get("task", line.get("step"))
            assert (name, number) not in found
            found.add((name, number))
            own = {tag: value for tag, value in line.items() if tag not in ("task", "step") and not tag.startswith("_")}
            metrics |= {(name, tag, number): value for tag, value in own.items()}
    assert metrics == expected_points(folder, swept, window)
