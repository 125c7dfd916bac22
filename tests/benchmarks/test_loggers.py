"""`plastax run --log`: TensorBoard and Weights & Biases get the numbers of metrics.jsonl, and nothing else changes."""

import errno
import json
import os
import sys
from types import SimpleNamespace
from typing import get_args

import pytest
from logger_support import assert_in_tensorboard, assert_in_wandb, offline_runs
from rich.console import Console
from tensorboardX.record_writer import RecordWriter
from toy import toy_config

from plastax_benchmarks.cli import main
from plastax_benchmarks.cli.run import parse
from plastax_benchmarks.config import configure
from plastax_benchmarks.loggers import catalog
from plastax_benchmarks.loggers.base import Point
from plastax_benchmarks.loggers.catalog import LOGGERS, LogTo
from plastax_benchmarks.loggers.rows import points_of
from plastax_benchmarks.loggers.tensorboard import TensorBoard
from plastax_benchmarks.loggers.wandb import WeightsAndBiases
from plastax_benchmarks.runs import RunFolder, open_run, read_stream
from plastax_benchmarks.sweep.folder import open_sweep
from plastax_benchmarks.sweep.plan import jobs_of
from plastax_benchmarks.sweep.start import run_jobs
from plastax_benchmarks.training.loop import run
from plastax_benchmarks.training.members import members_of
from plastax_benchmarks.training.replicas import Replicas


QUIET = Console(quiet=True)


def bits(out, **others):
    return toy_config("slowly-changing-regression", "l2", out=out, **others)


@pytest.fixture(scope="module")
def unlogged(tmp_path_factory):
    """A run without a logger."""
    return run(bits(tmp_path_factory.mktemp("unlogged") / "run", num_tasks=4, checkpoint_every=2), console=QUIET)


def assert_same(folder, other):
    """Nothing in the folder depends on the logger, not even the stored configuration."""
    for name in ("metrics.jsonl", "config.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes()


def test_every_choice_is_a_logger():
    assert get_args(LogTo) == ("none", *LOGGERS)


def test_tensorboard_has_the_numbers_of_the_rows(tmp_path):
    settings = bits(tmp_path / "run", log="tensorboard", yardstick=True, epsilon_rank_every=1, num_tasks=2)
    assert_in_tensorboard(run(settings, sweep={"weight_decay": (0.0, 1e-3)}, console=QUIET), ["weight_decay"])
    folders = sorted(path.name for path in (tmp_path / "run" / "tensorboard").iterdir())
    assert folders == [f"seed{seed}-weight_decay-{value}" for seed in (0, 1) for value in ("0", "0.001")]


@pytest.mark.usefixtures("wandb_offline")
def test_wandb_has_the_numbers_of_the_rows(tmp_path):
    settings = bits(tmp_path / "run", log="wandb", epsilon_rank_every=1, num_tasks=2)
    folder = run(settings, sweep={"weight_decay": (0.0, 1e-3)}, console=QUIET)
    assert_in_wandb(folder, ["weight_decay"])
    stored = json.loads((folder / "config.json").read_text())
    for name, own in offline_runs(folder).items():
        assert own.project == "plastax"
        assert own.group == f"{tmp_path.name}/run"
        assert name == f"seed{own.config['seed']}-weight_decay-{own.config['weight_decay']:g}"
        different = {"_wandb", "seed", "weight_decay"}
        assert {setting: value for setting, value in own.config.items() if setting not in different} == {
            setting: value for setting, value in stored.items() if setting not in {*different, "seeds", "sweep"}
        }


@pytest.mark.usefixtures("wandb_offline")
@pytest.mark.parametrize("log", LOGGERS)
def test_a_run_that_crashed_has_no_point_twice(tmp_path, monkeypatch, unlogged, log):
    """It crashes with four tasks logged and two saved, and tears the last record of an event file."""
    settings = bits(tmp_path / "run", num_tasks=4, checkpoint_every=2, log=log)
    save = RunFolder.save

    def save_or_crash(self, step, tree):
        if step == 4:
            raise ZeroDivisionError
        save(self, step, tree)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save_or_crash)
        with pytest.raises(ZeroDivisionError):
            run(settings, console=QUIET)
    check = {"tensorboard": assert_in_tensorboard, "wandb": assert_in_wandb}[log]
    check(tmp_path / "run")
    for file in (tmp_path / "run" / "tensorboard").rglob("*seed0/events*"):
        os.truncate(file, file.stat().st_size - 5)
    check(run(settings, console=QUIET))
    assert_same(tmp_path / "run", unlogged)


def test_another_logger_or_none_may_resume_a_run(tmp_path, unlogged):
    settings = bits(tmp_path / "run", num_tasks=4, checkpoint_every=2)
    run(settings.replace(num_tasks=2), console=QUIET)
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert_in_tensorboard(run(settings.replace(log="tensorboard"), console=QUIET))
    run(settings, console=QUIET)
    assert_same(tmp_path / "run", unlogged)


class Broken(TensorBoard):
    """Fails in one of its methods, always or after some calls."""

    title = "Broken"
    method, calls = "", 0

    def _fail(self, method):
        if method == self.method:
            type(self).calls -= 1
            if self.calls < 0:
                raise RuntimeError("the server is away\nand more lines")

    def __init__(self, *arguments):
        self._fail("__init__")
        super().__init__(*arguments)

    def log(self, points):
        self._fail("log")
        super().log(points)

    def close(self, **options):
        super().close(**options)
        self._fail("close")


@pytest.mark.parametrize(("method", "calls"), [("__init__", 0), ("log", 2), ("close", 0)])
def test_a_logger_that_fails_changes_nothing_else(tmp_path, monkeypatch, capsys, unlogged, method, calls):
    monkeypatch.setattr(Broken, "method", method)
    monkeypatch.setattr(Broken, "calls", calls)
    monkeypatch.setitem(catalog.LOGGERS, "tensorboard", Broken)
    run(bits(tmp_path / "run", num_tasks=4, checkpoint_every=2, log="tensorboard"), console=QUIET)
    assert_same(tmp_path / "run", unlogged)
    told = [line for line in capsys.readouterr().err.splitlines() if "logging" in line]
    assert len(told) == 1
    assert "logging to Broken failed (RuntimeError: the server is away) and is now off; the run continues" in told[0]


def test_a_full_disk_switches_tensorboard_off_until_there_is_space(tmp_path, monkeypatch, capsys, unlogged):
    settings = bits(tmp_path / "run", num_tasks=4, checkpoint_every=2, log="tensorboard")

    def full(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "flush", full)
        run(settings, console=QUIET)
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert_same(tmp_path / "run", unlogged)
    assert_in_tensorboard(run(settings, console=QUIET))


@pytest.mark.parametrize("problem", ["slowly-changing-regression", "slippery-ant"])
@pytest.mark.parametrize("log", LOGGERS)
def test_a_missing_package_is_reported_before_anything_happens(tmp_path, monkeypatch, problem, log):
    monkeypatch.setitem(sys.modules, LOGGERS[log].package, None)
    with pytest.raises(SystemExit) as stop:
        main(["run", problem, "--out", str(tmp_path / "run"), "--log", log])
    words = f'plastax run: --log {log} needs the package {LOGGERS[log].package}: pip install "plastax[loggers]"'
    assert stop.value.code == words
    assert not (tmp_path / "run").exists()


def test_a_folder_named_wandb_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(SystemExit, match="pip install"):
        main(["run", "slowly-changing-regression", "--out", str(tmp_path / "run"), "--log", "wandb"])


def test_an_unknown_logger_is_an_error_with_the_choices(capsys):
    with pytest.raises(SystemExit):
        main(["run", "slowly-changing-regression", "--log", "foo"])
    words = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "invalid choice 'foo'" in words
    assert "'none', 'tensorboard', 'wandb'" in words


def test_the_choice_is_a_flag_but_not_stored():
    config = parse("slippery-ant", ["--log", "wandb"]).config
    assert config.log == "wandb"
    assert config.as_json() == parse("slippery-ant", []).config.as_json()
    assert "log" not in config.as_json()
    assert configure("slippery-ant", "laptop", "l2").log == "none"


def test_logs_alone_leave_room_for_other_settings(tmp_path, monkeypatch):
    """A run that is stopped in its first task has nothing to resume."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Replicas, "evaluate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(bits(tmp_path / "run", log="tensorboard"), console=QUIET)
    assert (tmp_path / "run" / "tensorboard" / "seed0").exists()
    assert_in_tensorboard(run(bits(tmp_path / "run", learning_rate=0.02, log="tensorboard"), console=QUIET))


def test_a_sweep_passes_it_on(tmp_path):
    from test_sweep_run import HereEngine

    config = bits(None, seeds=1, num_tasks=1)
    with open_sweep(tmp_path, {"l2": config}) as folder:
        folder.add(jobs_of(config, members_of(config, {"weight_decay": (0.0, 0.1)}), 1))
        folder.write()
        run_jobs(folder, HereEngine(), QUIET, log="tensorboard")
    for name in ("l2-1", "l2-2"):
        assert_in_tensorboard(tmp_path / name, ["weight_decay"])


def test_points():
    row = {"task": 3, "seed": 1, "width": 8, "loss": 0.5, "rank": {"a": 2, "b": None}, "words": "x", "failed": True}
    values = {"loss": 0.5, "rank/a": 2.0, "failed": 1.0}
    assert points_of("metrics", [row], ["width"]) == [Point("seed1-width-8", "task", 3, True, values)]
    row = {"task": 0, "seed": 1, "when": "end", "rows": "train", "step": 128, "network": "actor", "trace": 2.0}
    assert points_of("diagnostics", [row], []) == [
        Point("seed1", "step", 128, False, {"diagnostics/end/train/actor/trace": 2.0})
    ]


def test_listeners_get_what_is_stored(tmp_path):
    heard = []
    with open_run(tmp_path, {}) as folder:
        folder.listen(lambda stream, rows: heard.append((stream, rows)))
        folder.append("metrics", [{"task": 0, "values": (1, 2)}])
        with pytest.raises(ValueError, match="nan"):
            folder.append("metrics", [{"task": 1, "value": float("nan")}])
        folder.listen(None)
        folder.append("metrics", [{"task": 2}])
    assert heard == [("metrics", [{"task": 0, "values": [1, 2]}])]
    assert heard[0][1] == read_stream(tmp_path / "metrics.jsonl")[:1]


class Server:
    """In the place of the module wandb, online: it has kept everything before step 2."""

    def __init__(self):
        self.runs = []

    def setup(self):
        return SimpleNamespace(settings=SimpleNamespace(mode="online", project="mine", run_group=None))

    def Settings(self, **options):
        return options

    def init(self, **options):
        lines = []
        run = SimpleNamespace(
            step=2, options=options, lines=lines, ended=[], log=lambda line, **where: lines.append((line, where))
        )
        run.finish = lambda exit_code: run.ended.append(exit_code)
        self.runs.append(run)
        return run


def test_wandb_online_continues_its_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", server := Server())
    for _ in range(2):
        logger = WeightsAndBiases(tmp_path, {"method": "l2", "seeds": 2}, {"seed0": {"seed": 0}, "seed1": {"seed": 1}})
        for task in range(4):
            logger.log([Point("seed1", "task", task, False, {"rank": float(task)})])
            logger.log([Point("seed1", "task", task, True, {"loss": 0.5})])
        logger.close(failed=False)
    first, second, *again = server.runs
    assert [run.options["id"] for run in again] == [first.options["id"], second.options["id"]]
    assert first.options["id"] != second.options["id"]
    assert (second.options["resume"], second.options["project"], second.options["name"]) == ("allow", "mine", "seed1")
    assert second.options["config"] == {"method": "l2", "seed": 1}
    assert first.lines == []
    assert second.lines == [
        ({"task": task, "rank": float(task), "loss": 0.5}, {"step": task, "commit": True}) for task in (2, 3)
    ]
    assert second.ended == [0]
