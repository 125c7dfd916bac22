"""Figures of the paper, drawn from made-up runs, and one from real ones."""

import dataclasses
import json

import pytest
from json_lines import write_lines
from matplotlib.text import Text
from reproduce_support import finish, with_rank

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.cli.reproduce import reproduce
from plastax_benchmarks.report.spectrum_grid import SpectrumGrid, SpectrumRow
from plastax_benchmarks.report.style import PAGE, method_look
from plastax_benchmarks.reproduce import curvature, curves, scales, spectra
from plastax_benchmarks.reproduce.catalog import FIGURES
from plastax_benchmarks.reproduce.figure import Drawn, Material, measurement_file
from plastax_benchmarks.reproduce.need import chosen_runs, read_finished
from plastax_benchmarks.reproduce.scales import Stream, performance_needs, spectra_needs


TASKS = 12
FALL = {"bp": 0.03, "er": 0.03, "l2": 0.0}
"""How much accuracy these methods lose in each task; others lose nothing."""


@pytest.fixture
def small(monkeypatch):
    """Twelve tasks at laptop scale, with spectra at three of them."""
    monkeypatch.setattr(
        scales,
        "configure",
        lambda problem, preset, method, **others: configure_small(problem, preset, method, others),
    )
    streams = {problem: Stream({}, 5, 2, ("bp",), 3) for problem in scales.SUPERVISED}
    monkeypatch.setitem(scales.STREAMS, "laptop", streams)
    monkeypatch.setattr(scales, "PROBLEMS", scales.SUPERVISED)


def configure_small(problem, preset, method, others):
    from plastax_benchmarks.config import configure

    return configure(problem, preset, method, **{**others, "num_tasks": TASKS})


def accuracy_of(need):
    falls = FALL.get(need.config.method.name, 0.0)
    return lambda seed, task: 0.9 - falls * task + 0.002 * ((seed + task) % 3)


def material_of(needs, tmp_path, **others):
    runs = read_finished([tmp_path / "runs"])
    return Material("laptop", tmp_path, {need.name: chosen_runs(need, runs) for need in needs}, **others)


def is_png(path):
    return path.read_bytes()[:4] == b"\x89PNG"


def answers(drawn):
    return {claim.paper: claim.answer for claim in drawn.claims}


@pytest.mark.parametrize("smooth", ["none", "savgol"])
def test_performance_and_dead_units(small, tmp_path, smooth):
    needs = [need for need in performance_needs("laptop") if need.config.problem.name == "permuted-mnist"]
    for need in needs:
        finish(tmp_path / "runs" / need.name, need, accuracy_of(need))
    material = material_of(needs, tmp_path, smooth=smooth)
    drawn = FIGURES["performance"].draw(material)
    assert [path.suffix for path in drawn.files] == [".png", ".svg"]
    assert is_png(drawn.files[0])
    found = answers(drawn)
    assert found["bp loses plasticity on permuted-mnist"] == "agrees"
    assert found["l2 keeps plasticity on permuted-mnist"] == "agrees"
    # The paper says otherwise.
    assert found["layernorm_l2 loses plasticity on permuted-mnist"] == "disagrees"
    gap = next(claim for claim in drawn.claims if claim.paper.startswith("bp")).numbers["gap"]
    assert gap == pytest.approx(-0.03 * 10)  # Tasks 9, 10 and 11 of 0 to 11.
    dead = FIGURES["dead-units-and-rank"].draw(material)
    assert is_png(dead.files[0])
    assert set(answers(dead).values()) == {"agrees"}


def test_without_runs_nothing_is_drawn(small, tmp_path):
    for name in ("hessian-spectrum", "curvature-accuracy", "performance", "dead-units-and-rank", "spectrum-grids"):
        assert FIGURES[name].draw(Material("laptop", tmp_path, {})) == Drawn()


def test_spectra_are_drawn_and_compared(small, tmp_path, small_report):
    report, ranks = small_report, {"bp": (40.0, 4.0), "er": (40.0, 8.0), "l2": (40.0, 30.0)}
    needs = spectra_needs("laptop", "continual-imagenet")
    for need in needs:
        first, last = ranks.get(need.config.method.name, (40.0, 44.0))
        finish(
            tmp_path / "runs" / need.name,
            need,
            accuracy_of(need),
            report=lambda task, first=first, last=last: with_rank(report, first + (last - first) * task / 10),
        )
    material = material_of(needs, tmp_path)
    drawn = spectra.draw_hessian(material)
    assert is_png(drawn.files[0])
    assert [claim.answer for claim in drawn.claims] == ["agrees", "agrees"]
    assert drawn.claims[0].numbers == {"higher": 40.0, "lower": 4.0}
    assert drawn.claims[1].numbers == {"higher": 44.0, "lower": 4.0}
    grids = spectra.draw_grids(material)
    assert [path.name for path in grids.files] == [
        "spectrum-grids-continual-imagenet.png",
        "spectrum-grids-continual-imagenet.svg",
    ]
    (claim,) = grids.claims
    assert claim.answer == "agrees"
    # bp and er have the same accuracy; they come first.
    assert set(list(claim.numbers["kept"])[:2]) == {"bp", "er"}
    assert claim.numbers["kept"]["bp"] == pytest.approx(0.1)


def test_overlapping_brackets_do_not_decide(small_report):
    rank = with_rank(small_report, 10.0).hessian.epsilon_rank
    wide = dataclasses.replace(rank, value=8.0, lower=5.0, upper=12.0)
    assert spectra.fallen(rank, wide) == spectra.fallen(wide, rank) == "undecided"
    below = dataclasses.replace(rank, value=3.0, lower=2.0, upper=9.0)
    assert spectra.fallen(rank, below) == "agrees"
    assert spectra.fallen(below, rank) == "disagrees"


def test_curvature_goes_along_with_accuracy(small, tmp_path, small_report):
    needs, report = curvature.needs("laptop"), small_report
    for need in needs:
        falls = accuracy_of(need)
        finish(
            tmp_path / "runs" / need.name,
            need,
            falls,
            rank=lambda seed, task, falls=falls: 100 * falls(seed, task) + seed,
            report=lambda task: with_rank(report, 20.0 - task),
        )
    drawn = curvature.draw_curvature(material_of(needs, tmp_path))
    assert is_png(drawn.files[0])
    assert len(drawn.claims) == 4
    assert [claim.answer for claim in drawn.claims] == ["agrees"] * 4
    assert all(claim.numbers["slope"] > 0 for claim in drawn.claims)


@pytest.mark.parametrize(
    ("ranks", "marked"),
    [
        ({0: 50.0, 5: 2.0, 10: 8.0}, [10, 5]),
        ({0: 50.0, 5: 2.0, 10: 2.0}, [5, 10]),
        ({0: 50.0, 5: 2.0}, [5]),
        ({0: 50.0}, [0]),
    ],
)
def test_spectra_with_the_most_and_the_least_curvature_are_marked(small_report, ranks, marked):
    reports = {task: with_rank(small_report, value) for task, value in ranks.items()}
    row = SpectrumRow("bp", method_look("bp"), 0, reports)
    assert curvature.marked_tasks(SpectrumGrid("start", "held_out", tuple(ranks), (row,))) == marked


def test_marks_have_the_same_color_in_the_panel_and_in_the_titles(small, tmp_path, small_report, monkeypatch):
    drawn = []
    monkeypatch.setattr(curvature, "save_figure", lambda figure, path: drawn.append(figure) or ())
    needs = [need for need in curvature.needs("laptop") if need.config.problem.name == "continual-imagenet"]
    for need in needs:
        finish(
            tmp_path / "runs" / need.name,
            need,
            accuracy_of(need),
            rank=lambda seed, task: 90.0 - 3 * task + seed,
            report=lambda task: with_rank(small_report, {0: 50.0, 5: 2.0, 10: 8.0}[task]),
        )
    curvature.draw_curvature(material_of(needs, tmp_path))
    points, *below = drawn[0].axes
    titles = [axis.get_title("left") for axis in below]
    assert [title[:18] for title in titles] == ["■ start of task 11", "▲ start of task 6:"]
    marks = {line.get_marker(): line.get_color() for line in points.lines if line.get_marker() in ("s", "^")}
    assert marks == {"s": "red", "^": "red"}
    assert {text.get_color() for axis in below for text in axis.findobj(Text) if text.get_text() in titles} == {"red"}


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 2)), (2, (2, 2)), (3, (2, 3)), (4, (4, 2))])
def test_performance_fits_on_a_page(small, tmp_path, monkeypatch, count, shape):
    from plastax_benchmarks.report.group import group_runs
    from plastax_benchmarks.report.quantities import ONLINE

    (need, *_) = performance_needs("laptop")
    finish(tmp_path / "runs" / need.name, need, lambda seed, task: 0.97 + 0.03 * (seed % 2))
    (group,), _ = group_runs(read_finished([tmp_path / "runs"]))
    drawn = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, path: drawn.append(figure) or ())
    rows = [[curves.Panel(group, ONLINE, f"{name} {place}") for place in range(count)] for name in ("upper", "lower")]
    curves.draw_curves(rows, tmp_path / "figure", "none")
    (figure,) = drawn
    assert figure.get_figwidth() == PAGE
    assert figure.axes[0].get_gridspec().get_geometry() == shape
    # With four, the last two are below both rows of the first two.
    titles = [axis.get_title("left") for axis in figure.axes]
    if count == 4:
        assert titles[:4] == ["upper 0", "upper 1", "lower 0", "lower 1"]
    # No accuracy is above 1.
    bands = [band.get_paths()[0].vertices[:, 1] for axis in figure.axes for band in axis.collections]
    assert max(map(max, bands)) == 1.0


def test_different_thresholds_do_not_decide(small, tmp_path):
    needs = [need for need in curvature.needs("laptop") if need.config.problem.name == "permuted-mnist"]
    (need,) = needs
    folder = finish(tmp_path / "runs" / "bp", need, accuracy_of(need), rank=lambda seed, task: 90.0 - 3 * task + seed)
    lines = [json.loads(line) for line in (folder / "diagnostics.jsonl").read_text().splitlines()]
    lines[0]["eps"] = 0.2
    write_lines(folder / "diagnostics.jsonl", lines)
    (claim,) = curvature.draw_curvature(material_of(needs, tmp_path)).claims
    assert claim.answer == "undecided"
    assert "0.1 to 0.2" in claim.words


@pytest.mark.parametrize("busy", [False, True])
def test_stored_times_are_drawn_and_not_measured_again(tmp_path, busy):
    times = {"bp": [1.0, 1.2], "l2": [1.1, 1.2], "spectral": [2.0, 2.6]}
    found = {"words": "a processor", "busy": busy, "milliseconds": dict.fromkeys(scales.SUPERVISED, times)}
    path = measurement_file("runtime", tmp_path, "laptop")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(found))
    drawn = FIGURES["runtime"].draw(Material("laptop", tmp_path, {}))
    assert is_png(drawn.files[0])
    assert {claim.answer for claim in drawn.claims} == {"undecided" if busy else "agrees"}
    assert any("not publishable" in note for note in drawn.notes) == busy
    assert drawn.claims[0].numbers["ratios"]["spectral"] == pytest.approx((2.0 + 2.6 / 1.2) / 2)


def test_the_command_plans_runs_resumes_and_draws(tmp_path, monkeypatch, capsys):
    tiny = {"width": 6, "num_tasks": 3, "seeds": 1, "train_size": 40, "test_size": 20, "epsilon_rank_rows": 4}
    monkeypatch.setitem(scales.LINEARIZED_SETTINGS, "laptop", {**tiny, "epsilon_rank_every": 1})
    monkeypatch.setitem(scales.LINEARIZED, "low-rank initialization", ("bp", {"initial_rank": 2}))
    reproduce("linearized", out=tmp_path, dry_run=True)
    assert "linearized-mnist" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []

    reproduce("linearized", out=tmp_path, workers=2)
    shown = capsys.readouterr().out
    assert "3 runs to start or to resume" in shown
    assert "All runs are finished." in shown
    assert is_png(tmp_path / "linearized.png")
    content = json.loads((tmp_path / "reproduce.json").read_text())
    assert len(content["figures"]["linearized"]["runs"]) == 3
    flat = next(claim for claim in content["figures"]["linearized"]["claims"] if "raw" in claim["paper"])
    assert flat["numbers"]["first"] > 0

    # Finished runs are reused, from another folder too.
    reproduce("linearized", out=tmp_path / "again", runs=(tmp_path / "runs",), workers=2)
    assert "No runs to start" in capsys.readouterr().out
    assert is_png(tmp_path / "again" / "linearized.png")
    assert not (tmp_path / "again" / "runs").exists()


def test_bad_requests_are_explained(tmp_path):
    with pytest.raises(UsageError, match="folder not found"):
        reproduce("linearized", runs=(tmp_path / "nothing",), dry_run=True)
    with pytest.raises(UsageError, match="at least 1"):
        reproduce("linearized", workers=0, dry_run=True)
    with pytest.raises(UsageError, match="unknown figure"):
        reproduce("figure-9", dry_run=True)
