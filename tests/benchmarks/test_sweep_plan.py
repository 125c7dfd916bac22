"""Sweeps before they run: grids, plans, and the folder's list of jobs."""

import errno
import json
import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import pytest
from toy import toy_config

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.config import configure
from plastax_benchmarks.config.laptop_grids import laptop_grid, strength_grid
from plastax_benchmarks.config.paper_tables import SWEEPS
from plastax_benchmarks.methods import METHODS, Method, needed_by
from plastax_benchmarks.problems.catalog import PROBLEMS
from plastax_benchmarks.runs import RunBusy, RunError
from plastax_benchmarks.sweep import memory
from plastax_benchmarks.sweep.folder import Job, missing_members, open_sweep, peek_sweep, read_sweep_folder
from plastax_benchmarks.sweep.grids import methods_by_default, read_grids
from plastax_benchmarks.sweep.plan import Measured, Speed, choose_size, jobs_of
from plastax_benchmarks.training.members import Member, combinations_of, members_of


def configs(*methods, **others):
    return {method: toy_config("slowly-changing-regression", method, **others) for method in methods}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_laptop_grids_have_equally_many_configurations_for_every_method(problem):
    counts = {}
    frozen = problem == "linearized-mnist"  # Its units cannot be replaced.
    for method in (name for name, kind in METHODS.items() if not (frozen and kind.replaces_units)):
        config = configure(problem, "laptop", method, seeds=1, **needed_by(method))
        strengths = METHODS[method].strengths
        counts[method] = len(members_of(config, laptop_grid(problem, method)))
        for combination in laptop_grid(problem, method):
            assert set(combination) == {"learning_rate", *strengths}
        for combination in strength_grid(problem, method):
            assert set(combination) == set(strengths)
        # Two of nine dormant thresholds would be out of range: 1 and 3.
        expected = 7 if method == "redo" and counts[method] == 9 else counts[method]
        assert len(members_of(config, strength_grid(problem, method))) == (expected if strengths else 1)
    assert len(set(counts.values())) == 1
    assert set(methods_by_default(problem, [])) <= set(counts)
    assert math.isqrt(counts["bp"]) ** 2 == counts["bp"] >= 4


def test_two_strengths_go_from_weak_to_strong_together():
    tried = laptop_grid("permuted-mnist", "l2_er")
    assert [one["learning_rate"] for one in tried] == [3e-3] * 3 + [1e-2] * 3 + [3e-2] * 3
    pairs = [(one["weight_decay"], one["er_learning_rate"]) for one in tried]
    assert pairs == [(1e-3, 1e-2), (3e-3, 3e-2), (1e-2, 1e-1)] * 3
    assert (
        len({(one["weight_decay"], one["er_learning_rate"]) for one in strength_grid("permuted-mnist", "l2_er")}) == 9
    )
    decays = [one["weight_decay"] for one in strength_grid("permuted-mnist", "l2")]
    assert decays == [3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1]


def test_a_new_method_is_tried_around_its_defaults(monkeypatch):
    @dataclass(frozen=True)
    class New(Method):
        name: ClassVar = "new"
        strengths: ClassVar = ("force",)
        force: float = 0.5

    monkeypatch.setitem(METHODS, "new", New)
    assert [one["force"] for one in laptop_grid("permuted-mnist", "new")[:3]] == pytest.approx((0.05, 0.5, 5.0))
    assert [one["force"] for one in laptop_grid("slippery-ant", "new")[:2]] == pytest.approx((0.05, 0.5))


def test_the_papers_grids_are_its_tables():
    for problem, methods in SWEEPS.items():
        known = {method: configure(problem, "paper", method, seeds=1) for method in methods}
        assert methods_by_default(problem, []) == list(methods)
        for method, grid in read_grids(known, ["paper"]).items():
            assert {name: set(values) for name, values in grid.items()} == {
                name: set(sweep.values) for name, sweep in methods[method].items()
            }
    assert len(combinations_of(read_grids({"l2_er": known["l2_er"]}, ["paper"])["l2_er"])) == 9
    with pytest.raises(UsageError, match="the paper has no sweep of redo on permuted-mnist: leave it out"):
        read_grids({"redo": configure("permuted-mnist", "paper", "redo")}, ["paper"])
    with pytest.raises(UsageError, match="the paper has no sweeps of slowly-changing-regression"):
        read_grids(configs("bp"), ["paper"])


def test_grids_from_the_command_line_apply_where_the_setting_exists():
    grids = read_grids(configs("bp", "l2"), ["weight-decay=0,0.1", "width=3,4"])
    assert grids == {"bp": {"width": (3, 4)}, "l2": {"weight_decay": (0.0, 0.1), "width": (3, 4)}}


def test_grids_from_files(tmp_path):
    grid = {"l2": {"weight-decay": [0.1, 1], "width": 7}, "bp": {}}
    file = tmp_path / "grid.json"
    file.write_text(json.dumps(grid))
    assert methods_by_default("permuted-mnist", [str(file)]) == ["l2", "bp"]
    expected = {"l2": {"weight_decay": (0.1, 1.0), "width": (7,)}, "bp": {}}
    assert read_grids(configs("l2", "bp"), [str(file)]) == expected
    toml = tmp_path / "grid.toml"
    toml.write_text("[l2]\nweight_decay = [0.1, 1]\nwidth = 7\n[bp]\n")
    assert read_grids(configs("l2", "bp"), [str(toml)]) == expected
    with pytest.raises(UsageError, match="has no grid for er: it has l2, bp"):
        read_grids(configs("er"), [str(file)])


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["nowhere.json"], "neither paper, laptop, strengths nor setting=a,b, and cannot be read as a file"),
        (["laptop", "paper"], "--grid takes one name or file"),
        (["weight-decay=1", "laptop"], "--grid takes a name, a file, or a setting and values"),
        (["weight-decay=0.1", "weight-decay=0.2"], "--grid weight-decay is given twice"),
        (["weight-decay=0.1,0.1"], "contains a value twice"),
        (["weight-decay=-1"], "--weight-decay must be at least 0"),
        (["er-weight=1"], "a sweep of --er-weight has no effect on method l2"),
        (["wight-decay=1"], "did you mean --weight-decay"),
    ],
)
def test_mistakes_in_grids_get_a_sentence(texts, words):
    with pytest.raises(ValueError, match=words):
        read_grids(configs("l2"), texts)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "contains no grids"),
        ('{"l3": {}}', "unknown method 'l3'"),
        ('{"l2": 3}', "has 3 as"),
    ],
)
def test_broken_grid_files_get_a_sentence(tmp_path, content, words):
    (tmp_path / "grid.json").write_text(content)
    with pytest.raises(UsageError, match=words):
        read_grids(configs("l2"), [str(tmp_path / "grid.json")])


def sizes(jobs):
    return [job.size for job in jobs]


def test_jobs_have_one_program_and_at_most_the_given_size():
    config = toy_config("slowly-changing-regression", "l2", seeds=2, seed=100)
    members = members_of(config, {"weight_decay": (0.0, 0.1, 0.2, 0.3, 0.4), "width": (3, 4)})
    jobs = jobs_of(config, members, 8)
    assert sizes(jobs) == [4, 6, 4, 6]
    for job in jobs:
        assert len({values["width"] for values in job.combinations}) == 1
    planned = [(seed, values) for job in jobs for values in job.combinations for seed in (100, 101)]
    assert sorted(planned, key=str) == sorted(((m.seed, m.values) for m in members), key=str)
    # Smaller than the number of seeds: one configuration in a job, with some of its seeds.
    single = jobs_of(toy_config("slowly-changing-regression", "l2", seeds=5), [Member(i, {}) for i in range(5)], 2)
    assert [(job.seed, job.seeds) for job in single] == [(0, 1), (1, 2), (3, 2)]


def test_seeds_that_are_not_consecutive_are_separate_jobs():
    config = toy_config("slowly-changing-regression", "l2")
    jobs = jobs_of(config, [Member(seed, {"weight_decay": 0.1}) for seed in (3, 5, 6, 9)], 100)
    assert [(job.seed, job.seeds) for job in jobs] == [(3, 1), (5, 2), (9, 1)]


def test_a_job_is_halved_by_configurations_then_by_seeds():
    whole = Job("l2-1", "l2", ({"a": 1}, {"a": 2}, {"a": 3}), 100, 3, seconds=9.0, bytes=1e9)
    first, second = whole.halves()
    assert (first.combinations, second.combinations) == (whole.combinations[:1], whole.combinations[1:])
    assert (first.seconds, second.seconds, first.bytes) == (3.0, 6.0, None)
    assert [(half.seed, half.seeds) for half in first.halves()] == [(100, 1), (101, 2)]


def test_the_size_of_a_job_follows_what_was_measured():
    def speed(together, memory=100.0, start=0.0):
        """8 members in one program take `together` as long as one."""
        return Speed(10, memory, (Measured(1, 1.0, start, 10.0), Measured(8, together, start, 80.0)))

    assert choose_size(speed(2.0), 8) == 8
    # Slower than one at a time: not together, even if every job takes some time to start.
    assert choose_size(speed(12.0), 8) == 1
    assert choose_size(speed(12.0, start=3.0), 8) == 1
    # Equally fast: together, if that saves starts.
    assert choose_size(speed(8.0, start=3.0), 8) == 8
    # Unless starts are short in comparison: less is lost with a small job.
    assert choose_size(speed(8.0, start=0.05), 8) == 1
    # As large as memory allows.
    assert choose_size(speed(2.0, memory=45.0), 8) == 4
    assert choose_size(speed(2.0, memory=1.0), 8) == 1
    # Four machines: four jobs.
    assert choose_size(speed(8.0, start=3.0), 8, at_once=4) == 2
    # Linear between and beyond what was measured.
    assert speed(8.0).at(4).task_seconds == pytest.approx(4.0)
    assert speed(8.0).at(16).bytes == pytest.approx(160.0)


def test_what_a_sweep_lacks(tmp_path):
    first = configs("bp", "l2", seeds=2, seed=100)
    grid = {"bp": {}, "l2": {"weight_decay": (0.0, 0.1)}}
    with open_sweep(tmp_path / "sweep", first) as folder:
        for method, members in missing_members(folder, first, grid).items():
            folder.add(jobs_of(first[method], members, 2))
        folder.write()
        assert [job.name for job in folder.jobs] == ["bp-1", "l2-1", "l2-2"]
        assert missing_members(folder, first, grid) == {"bp": [], "l2": []}
        with pytest.raises(RunBusy, match="in use by pid"), open_sweep(tmp_path / "sweep", first):
            pass
    # The same file, read again; with one more seed, one more value, and one more method.
    assert read_sweep_folder(tmp_path / "sweep").jobs == folder.jobs
    more = configs("bp", "l2", "er", seeds=3, seed=100)
    with peek_sweep(tmp_path / "sweep", more) as folder:
        lacks = missing_members(folder, more, {"bp": {}, "l2": {"weight_decay": (0.1, 0.2)}, "er": {}})
    assert lacks["bp"] == [Member(102, {})]
    assert lacks["l2"] == [
        Member(102, {"weight_decay": 0.1}),
        *(Member(s, {"weight_decay": 0.2}) for s in (100, 101, 102)),
    ]
    assert len(lacks["er"]) == 3


def test_another_sweep_is_refused(tmp_path):
    with open_sweep(tmp_path / "sweep", configs("bp")) as folder:
        folder.write()
    with (
        pytest.raises(RunError, match="contains another sweep:\n  bp, num_tasks: 3 in the folder, 4 now\n"),
        open_sweep(tmp_path / "sweep", configs("bp", num_tasks=4)),
    ):
        pass
    other = {"bp": toy_config("permuted-mnist", "bp")}
    with (
        pytest.raises(RunError, match="problem: 'slowly-changing-regression' in the folder, 'permuted-mnist' now"),
        open_sweep(tmp_path / "sweep", other),
    ):
        pass
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("")
    with (
        pytest.raises(RunError, match=r"contains something else \(thesis.tex\) and not a sweep"),
        open_sweep(tmp_path / "else", configs("bp")),
    ):
        pass
    with pytest.raises(RunError, match="is a file"), open_sweep(tmp_path / "else" / "thesis.tex", configs("bp")):
        pass
    (tmp_path / "sweep" / "sweep.json").write_text("{")
    with pytest.raises(RunError, match=r"sweep.json cannot be read"), open_sweep(tmp_path / "sweep", configs("bp")):
        pass


def test_a_sweep_that_was_killed_before_its_first_job_can_be_repeated(tmp_path):
    (tmp_path / "logs").mkdir()
    for name in ("lock", ".tmp-sweep.json-0123abcd", ".seen-0123abcd"):
        (tmp_path / name).write_text("")
    with open_sweep(tmp_path, configs("bp")) as folder:
        assert folder.jobs == []


@pytest.mark.parametrize("methods", [{}, {"bp": {"problem": "permuted-mnist"}}])
def test_a_list_of_jobs_without_their_settings_gets_a_sentence(tmp_path, methods):
    jobs = [asdict(Job("bp-1", "bp", ({},), 100, 1))]
    (tmp_path / "sweep.json").write_text(json.dumps({"methods": methods, "jobs": jobs}))
    with (
        pytest.raises(RunError, match=r"sweep.json lacks the settings of bp: restore"),
        open_sweep(tmp_path, configs("l2")),
    ):
        pass


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("os.open", refuse)
        with pytest.raises(RunError, match=r"cannot be used \(Read-only"), open_sweep(tmp_path, configs("bp")):
            pass


def test_the_memory_of_a_container_does_not_count_cached_files_as_used(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_available", lambda: 10000.0)
    assert memory.free_memory() == pytest.approx(8000.0)
    for name, text in (("max", "1000"), ("current", "900"), ("stat", "anon 100\ninactive_file 600\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.free_memory() == pytest.approx(0.8 * 700)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory() == pytest.approx(8000.0)
