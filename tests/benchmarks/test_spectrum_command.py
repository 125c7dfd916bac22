import dataclasses
import shutil

import jax
import numpy as np
import pytest

from plastax_benchmarks.cli.spectrum import spectrum
from plastax_benchmarks.config import configure
from plastax_benchmarks.problems.load import load_problem
from plastax_benchmarks.report.spectra import choose, find_reports
from plastax_benchmarks.report.spectra_figure import panels
from plastax_benchmarks.runs import ReportPlace, open_run, read_checkpoint
from plastax_benchmarks.training.members import Member
from plastax_benchmarks.training.replicas import Replicas
from plastax_benchmarks.training.task import Trainer
from plastax_diagnostics._report.density_plot import stretched_density


def write_run(path, report, tasks=(0, 10, 20, 30), seeds=(0, 1), swept=("",)):
    (path / "reports").mkdir(parents=True)
    (path / "config.json").write_text("{}")
    for task in tasks:
        for seed in seeds:
            for one in swept:
                for when in ("start", "end"):
                    for rows in ("train", "held_out"):
                        name = f"task{task:05}-seed{seed}{one}-{when}-{rows}.json"
                        (path / "reports" / name).write_text(dataclasses.replace(report, seconds=float(task)).to_json())
    return path


def is_png(path):
    return path.read_bytes()[:4] == b"\x89PNG"


def test_reports_are_shown_in_a_figure_and_a_table(tmp_path, small_report, capsys):
    run = write_run(tmp_path / "run", small_report)
    spectrum(run)
    assert is_png(run / "spectra.png")
    shown = capsys.readouterr().out
    # First, middle and last task, at two moments, on two kinds of rows.
    assert shown.count("held out") == shown.count(" train ") == 6
    assert max(map(len, shown.replace(str(tmp_path), "").splitlines())) <= 80
    tasks = {line.split()[0] for line in shown.splitlines() if "start" in line}
    assert tasks == {"1", "21", "31"}
    assert f"{small_report.hessian.largest:.3g}" in shown
    assert f"{small_report.gram.epsilon_rank.value:.0f}" in shown
    assert small_report.verdict.split()[0] in shown
    assert f"eps = {small_report.eps:.3g}" in " ".join(shown.split())
    # The verdict is short in the table: the legend has what it compares.
    assert "begins to learn these rows, compared with new networks" in " ".join(shown.split())

    spectrum(run, task=(11,), seed=1, out=tmp_path / "other.png")
    assert is_png(tmp_path / "other.png")
    shown = capsys.readouterr().out
    assert shown.count("held out") == 2
    assert " 11 " in shown


def test_reports_without_a_gram_matrix_are_shown_too(tmp_path, small_report, capsys):
    run = write_run(
        tmp_path / "run", dataclasses.replace(small_report, gram=None, residual=None, condition=None), (0,), (0,)
    )
    spectrum(run)
    assert is_png(run / "spectra.png")
    assert capsys.readouterr().out.count("n/a") == 2 * 4


def test_members_of_a_sweep_are_chosen_by_name(tmp_path, small_report, capsys):
    run = write_run(tmp_path / "run", small_report, (0,), (0,), ("-weight_decay-0.001", "-weight_decay-1e-05"))
    spectrum(run)
    assert "weight_decay-1e-05" in capsys.readouterr().out
    spectrum(run, swept="weight_decay-1e-05")
    assert "--swept: weight_decay-0.001" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="no report of swept weight_decay-1 was saved: choose from weight_decay-0"):
        spectrum(run, swept="weight_decay-1")


def test_what_is_not_there_is_named(tmp_path, small_report):
    with pytest.raises(ValueError, match="folder not found"):
        spectrum(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is not a run"):
        spectrum(tmp_path)
    run = write_run(tmp_path / "run", small_report)
    with pytest.raises(ValueError, match="no report of task 5 was saved: choose from 1, 11, 21, 31"):
        spectrum(run, task=(5,))
    with pytest.raises(ValueError, match="no report of seed 7 was saved: choose from 0, 1"):
        spectrum(run, seed=7)
    (run / "reports" / "task00000-seed0-start-train.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a plasticity report"):
        spectrum(run)
    shutil.rmtree(run / "reports")
    with pytest.raises(ValueError, match="holds no settings"):
        spectrum(run)
    (run / "config.json").write_text('{"problem": "slippery-ant"}')
    with pytest.raises(ValueError, match="spectra are for supervised problems"):
        spectrum(run)


def test_places_are_read_from_names(tmp_path):
    (tmp_path / "reports").mkdir()
    for name in (
        "task00003-seed12-er_learning_rate-0.001-end-held_out.json",
        "task00003-seed1-start-train.json",
        "other.json",
    ):
        (tmp_path / "reports" / name).write_text("")
    assert set(find_reports(tmp_path)) == {
        ReportPlace(3, 12, "er_learning_rate-0.001", "end", "held_out"),
        ReportPlace(3, 1, "", "start", "train"),
    }
    places = [ReportPlace(task, seed, "", "end", "train") for task in range(7) for seed in (4, 5)]
    assert [(place.task, place.seed) for place in choose(places, (), None, None)] == [(0, 4), (3, 4), (6, 4)]


def test_there_are_no_empty_panels():
    def titles(moments):
        rows = panels([ReportPlace(task, 0, "", when, "train") for task, when in moments])
        return [[(panel.kind, panel.task, panel.when) for panel in row] for row in rows]

    kinds = ("Hessian", "Gauss-Newton")
    whole = [(task, when) for task in (0, 5) for when in ("start", "end")]
    assert titles(whole) == [[(kind, 0, when), (kind, 5, when)] for kind in kinds for when in ("start", "end")]
    # A run without reports has the end of its last task and the start of the next one.
    assert titles([(3, "start"), (2, "end")]) == [[(kind, 2, "end"), (kind, 3, "start")] for kind in kinds]


def test_a_density_has_integral_1():
    values, density = stretched_density(np.array([-0.3, 0.0, 0.02, 50.0]), np.array([0.1, 0.6, 0.2, 0.1]), 0.01)
    along = np.arcsinh(values / 0.01)
    assert np.trapezoid(density, along) == pytest.approx(1.0)
    beyond = values > 1.0
    assert np.trapezoid(density[beyond], along[beyond]) == pytest.approx(0.1, abs=1e-3)


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory):
    """A run that was saved after its third task, and is still open."""
    path = tmp_path_factory.mktemp("runs") / "run"
    settings = configure(
        "slowly-changing-regression", "laptop", "bp", train_size=40, test_size=30, width=3, seeds=2, out=path
    )
    problem, data = load_problem(settings.problem)
    programs = Replicas(Trainer(problem, settings), data, [Member(0, {}), Member(1, {})])
    with open_run(path, settings.as_json()) as folder:
        folder.save(3, programs.init(0))
        yield path, programs


def test_without_reports_the_last_checkpoint_is_looked_at(saved_run, capsys):
    path, _ = saved_run
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    spectrum(path, seed=1)
    shown = capsys.readouterr().out
    assert "end of task 3" in shown
    assert "start of task 4" in shown
    assert shown.count("held out") == 2
    assert is_png(path / "spectra.png")
    assert before.items() <= {file: file.stat().st_mtime_ns for file in path.rglob("*")}.items()
    with pytest.raises(ValueError, match="no report of seed 5 was saved: choose from 0, 1"):
        spectrum(path, seed=5)


def test_without_a_checkpoint_there_is_nothing_to_look_at(saved_run, tmp_path):
    path, _ = saved_run
    shutil.copy(path / "config.json", tmp_path / "config.json")
    with pytest.raises(ValueError, match="neither reports nor checkpoints"):
        spectrum(tmp_path)


def test_reading_leaves_a_damaged_checkpoint_where_it_is(saved_run, tmp_path):
    path, programs = saved_run
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    (copy / "checkpoints" / "4").mkdir()
    (copy / "checkpoints" / "4" / "checkpoint.json").write_text("half of it")
    step, learner = read_checkpoint(copy, jax.eval_shape(lambda: programs.init(0)))
    assert step == 3
    jax.tree.map(np.testing.assert_array_equal, learner, programs.init(0))
    assert (copy / "checkpoints" / "4").is_dir()
    assert read_checkpoint(tmp_path, learner) is None
