"""The plan of a reproduction, its claims, and its files."""

import json
import shutil

import numpy as np
import pytest
from reproduce_support import finish

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.config import configure
from plastax_benchmarks.report.read import read_runs
from plastax_benchmarks.reproduce import plan as planning
from plastax_benchmarks.reproduce.catalog import FIGURES, figures_of
from plastax_benchmarks.reproduce.claim import Claim, by_interval, overall
from plastax_benchmarks.reproduce.estimate import in_words, seconds_of, steps_of
from plastax_benchmarks.reproduce.figure import Drawn, PaperFigure
from plastax_benchmarks.reproduce.kernel_permutation import kernel_claims, kernel_distances
from plastax_benchmarks.reproduce.linearized import Switches, claims
from plastax_benchmarks.reproduce.need import Need, chosen_runs
from plastax_benchmarks.reproduce.plan import make_plan, plan_rows, plan_words
from plastax_benchmarks.reproduce.runtime import ratios, time_methods
from plastax_benchmarks.reproduce.scales import METHODS, PROBLEMS, SCALES, performance_needs
from plastax_benchmarks.reproduce.smooth import savitzky_golay
from plastax_benchmarks.reproduce.summary import write_summary


def need(name="digits", method="bp", **others):
    return Need(name, configure("permuted-mnist", "laptop", method, **{"num_tasks": 6, "seeds": 3, **others}))


def figure_with(*needs, name="performance"):
    return PaperFigure(name, "what it shows", "How to read it.", lambda scale: needs, lambda material: Drawn())


def of(folder):
    (run,) = read_runs(folder)
    return run


def test_a_run_of_the_same_experiment_is_reused(tmp_path):
    wanted = need()
    assert wanted.finished_seeds(of(finish(tmp_path / "same", wanted))) == {0, 1, 2}
    # More seeds and tasks than needed, and measurements that are not, make no difference.
    longer = finish(tmp_path / "longer", wanted, seeds=(2, 3), tasks=8, num_tasks=8, diagnose_size=7, yardstick=True)
    assert wanted.finished_seeds(of(longer)) == {2}
    for name, value in {"learning_rate": 0.5, "width": 7, "method": "l2", "eval_size": 5, "preset": "paper"}.items():
        assert wanted.finished_seeds(of(finish(tmp_path / name, wanted, **{name: value}))) == set()
    assert wanted.finished_seeds(of(finish(tmp_path / "short", wanted, tasks=5))) == set()


def test_measurements_must_be_there(tmp_path):
    ranks, plain = need(epsilon_rank_every=2), finish(tmp_path / "plain", need())
    assert ranks.finished_seeds(of(plain)) == set()
    measured = finish(tmp_path / "measured", ranks, rank=lambda seed, task: 5.0)
    assert ranks.finished_seeds(of(measured)) == {0, 1, 2}
    # With another number of rows, ranks are another measurement; without ranks in the figure, they do not matter.
    other = finish(tmp_path / "other", ranks, rank=lambda seed, task: 5.0, epsilon_rank_rows=11)
    assert ranks.finished_seeds(of(other)) == set()
    assert need().finished_seeds(of(other)) == {0, 1, 2}
    spectra = need(diagnose_every=5)
    assert spectra.report_tasks == (0, 5)
    assert spectra.finished_seeds(of(plain)) == set()


def test_seeds_come_from_several_runs_each_once(tmp_path):
    wanted = need(seeds=4)
    first = of(finish(tmp_path / "a", wanted, lambda seed, task: 0.1, seeds=(0, 1)))
    second = of(finish(tmp_path / "b", wanted, lambda seed, task: 0.2, seeds=(1, 2)))
    found = chosen_runs(wanted, [first, second])
    assert [sorted(run.metrics) for run in found] == [[0, 1], [2]]


def test_only_missing_seeds_are_run(tmp_path):
    wanted = need(seeds=6)
    finish(tmp_path / "before" / "some", wanted, seeds=(1,))
    finish(tmp_path / "before" / "others", wanted, seeds=(4,))
    plan = make_plan([figure_with(wanted)], "laptop", tmp_path / "out", [tmp_path / "before"], None)
    (item,) = plan.items["performance"]
    assert item.reused_seeds == 2
    assert [(job.config.seed, job.config.seeds) for job in plan.jobs] == [(0, 1), (2, 2), (5, 1)]
    assert [job.name for job in plan.jobs] == ["digits-seeds-0-0", "digits-seeds-2-3", "digits-seeds-5-5"]
    # The same command finds the same folders, which then resume.
    again = make_plan([figure_with(wanted)], "laptop", tmp_path / "out", [tmp_path / "before"], None)
    assert [job.config.folder for job in again.jobs] == [job.config.folder for job in plan.jobs]
    assert [job.done for job in again.jobs] == [0.0, 0.0, 0.0]
    for job in plan.jobs:
        finish(job.config.folder, Need(job.name, job.config), tasks=3)
    half = make_plan([figure_with(wanted)], "laptop", tmp_path / "out", [tmp_path / "before"], None)
    assert [job.done for job in half.jobs] == [0.5, 0.5, 0.5]
    assert half.seconds(1) == pytest.approx(plan.seconds(1) / 2)
    assert "Begun earlier, and resumed: 3." in plan_words(half, 2)
    for job in plan.jobs:
        shutil.rmtree(job.config.folder)
        finish(job.config.folder, Need(job.name, job.config))
    done = make_plan([figure_with(wanted)], "laptop", tmp_path / "out", [tmp_path / "before"], None)
    assert done.jobs == ()
    assert done.items["performance"][0].reused_seeds == 6


def test_figures_share_runs(tmp_path):
    figures = [
        figure_with(need("curves"), name="performance"),
        figure_with(need("ranks", epsilon_rank_every=2), name="curvature-accuracy"),
        figure_with(need("spectra", seeds=1, diagnose_every=5), name="spectrum-grids"),
    ]
    plan = make_plan(figures, "laptop", tmp_path, [], None)
    # The curves need nothing that the other two do not have; their own measurements differ.
    assert [job.name for job in plan.jobs] == ["spectra-seeds-0-0", "ranks-seeds-0-2"]
    assert {job.name for job in plan.items["performance"][0].jobs} == {job.name for job in plan.jobs}
    header, *rows = plan_rows(plan)
    assert header[0] == "figure"
    assert [row[4] for row in rows] == ["2", "0", "0"]
    assert all(row[-1] == "digits" for row in rows)
    assert "2 runs to start or to resume, 2 at a time" in plan_words(plan, 2)
    # A longer interval, or fewer tasks, is not enough.
    assert not need(epsilon_rank_every=2).is_part_of(need(epsilon_rank_every=3).config)
    assert not need(num_tasks=7).is_part_of(need().config)
    assert not need(diagnose_every=5).is_part_of(need(diagnose_every=3).config)


def test_runs_without_their_data_are_left_out(tmp_path):
    wanted = Need("cifar", configure("incremental-cifar", "laptop", "bp"))
    plan = make_plan([figure_with(wanted)], "laptop", tmp_path, [], tmp_path / "no-data")
    assert plan.jobs == ()
    assert "data set cifar100" in plan_words(plan, 2)
    assert plan_rows(plan)[1][4] == "left out"


def test_the_ant_needs_brax(tmp_path, monkeypatch):
    monkeypatch.setattr(planning.importlib.util, "find_spec", lambda name: None)
    wanted = Need("ant", configure("slippery-ant", "laptop", "bp"))
    plan = make_plan([figure_with(wanted)], "laptop", tmp_path, [], None)
    assert plan.jobs == ()
    assert "plastax[rl]" in plan_words(plan, 2)


def test_steps_and_times():
    digits = configure("permuted-mnist", "laptop", "bp", seeds=3)
    assert steps_of(digits) == 40 * 4500
    # 0.05 ms for each step of each seed.
    assert seconds_of(digits) == pytest.approx(40 + 3 * 40 * 4500 * 0.05e-3)
    assert seconds_of(digits.replace(epsilon_rank_every=20)) == pytest.approx(seconds_of(digits) + 3 * 2 * 1.0)
    assert steps_of(configure("permuted-mnist", "paper", "bp")) == 800 * 60_000
    imagenet = configure("continual-imagenet", "paper", "bp")
    assert steps_of(imagenet) == 2000 * 20 * 1200 // 100
    # Five more classes in each of 20 tasks: 5 x 500 x (1 + ... + 20) rows, if CIFAR-100 is complete.
    assert steps_of(configure("incremental-cifar", "paper", "bp", train_size=500)) == 200 * 5 * 500 * 210 // 100
    assert [in_words(seconds) for seconds in (3.0, 600.0, 9000.0, 4e6)] == ["3 s", "10 min", "2.5 h", "1,111 h"]


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_of_every_figure_has_a_name_and_an_estimate(scale):
    named = {}
    for figure in FIGURES.values():
        for each in figure.needs(scale):
            assert seconds_of(each.config) > 0
            assert each.config.preset == scale
            # One name is one folder.
            assert named.setdefault(each.name, each.config) == each.config
    assert {(each.config.problem.name, each.config.method.name) for each in performance_needs(scale)} == {
        (problem, method) for problem in PROBLEMS for method in METHODS
    }


def test_figures_have_names():
    assert len(figures_of("all")) == 8
    assert figures_of("linearized")[0].name == "linearized"
    with pytest.raises(UsageError, match="did you mean linearized"):
        figures_of("linearised")


def test_answers_follow_from_intervals():
    assert by_interval([0.1, 0.2]) == by_interval([-0.2, -0.1], sign=-1) == "agrees"
    assert by_interval([-0.2, -0.1]) == by_interval([0.1, 0.2], sign=-1) == "disagrees"
    assert by_interval([-0.1, 0.1]) == by_interval(None) == "undecided"
    assert overall([Claim("a", "agrees", ""), Claim("b", "undecided", "")]) == "agrees 1, undecided 1"


def test_the_filter_keeps_parabolas_and_short_curves():
    tasks = np.arange(40.0)
    parabola = 0.3 + 0.02 * tasks - 0.001 * tasks**2
    np.testing.assert_allclose(savitzky_golay(parabola), parabola, atol=1e-12)
    wave = parabola + 0.1 * (-1) ** np.arange(40)
    # Nine tasks next to each other have a wave of mean 0.1 / 9, which parabolas fit a little better.
    assert np.abs(savitzky_golay(wave) - parabola)[4:-4].max() < 0.03
    np.testing.assert_array_equal(savitzky_golay(wave[:9]), wave[:9])


def switches(weighted, accuracy, raw=300.0):
    """Two seeds, the second a little higher."""
    values = np.array([weighted, np.add(weighted, 1)]).T
    raw_values, results = np.full_like(values, raw), np.array([accuracy, accuracy]).T
    return Switches(np.arange(len(weighted)), values, raw_values, results, size=400)


def test_claims_about_the_linearized_network():
    falling, accuracy = [80.0, 60.0, 50.0, 40.0, 30.0, 20.0, 15.0, 10.0], [0.9, 0.8, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3]
    found = {
        "no regularizer": switches(falling, accuracy),
        "L2": switches([80.0] * 8, accuracy),
        "low-rank initialization": switches([5.0] * 8, accuracy),
    }
    correlated, flat, decay, low_rank = claims(found)
    assert correlated.numbers["correlation"] == pytest.approx(1.0)
    assert (flat.answer, decay.answer, low_rank.answer) == ("agrees", "agrees", "agrees")
    assert decay.numbers["rank"] == pytest.approx(80 - 12.5)
    assert low_rank.numbers["rank"] == pytest.approx(5 - 12.5)
    moved = found["no regularizer"]._replace(raw=np.linspace(300, 100, 16).reshape(8, 2))
    assert claims({"no regularizer": moved})[1].answer == "disagrees"
    # At its maximum, a rank cannot show a change.
    saturated = claims({"no regularizer": switches(falling, accuracy, raw=400.0)})[1]
    assert saturated.answer == by_interval(None)
    assert "all 400 eigenvalues are above the threshold" in saturated.words
    almost = found["no regularizer"]._replace(raw=np.where(np.arange(16).reshape(8, 2) == 15, 399.0, 400.0))
    assert claims({"no regularizer": almost})[1].answer == "agrees"
    constant = claims({"no regularizer": switches([3.0] * 8, accuracy)})[0]
    assert constant.answer == "undecided"


def test_kernels_forget_permutations():
    found = kernel_distances((10, 100, 1000), seeds=3, samples=6, dimension=10)
    assert [claim.answer for claim in kernel_claims(found)] == ["agrees", "agrees"]
    stuck = found._replace(between=np.full((3, 3), 0.2), of_limit=0.1)
    assert [claim.answer for claim in kernel_claims(stuck)] == ["disagrees", "disagrees"]


def test_ratios_are_taken_within_rounds():
    found = ratios({"bp": [1.0, 2.0, 4.0], "l2": [2.0, 2.0, 12.0]})
    assert found == {"bp": 1.0, "l2": 2.0}


def test_methods_are_timed():
    found = time_methods("permuted-mnist", "laptop", ("bp", "l2_er"), rounds=2, width=4)
    assert [len(times) for times in found.values()] == [2, 2]
    assert all(time > 0 for times in found.values() for time in times)


def test_the_summary_keeps_other_figures_and_has_no_nan(tmp_path):
    claim = Claim("the paper says so", "agrees", "0.5 of 1", {"ratio": float("nan"), "seeds": (1, 2)})
    write_summary(tmp_path, "laptop", {"linearized": Drawn((tmp_path / "a.png",), (claim,))}, FIGURES, {})
    write_summary(tmp_path, "laptop", {"performance": Drawn(notes=("a note",))}, FIGURES, {})
    content = json.loads((tmp_path / "reproduce.json").read_text(), parse_constant=pytest.fail)
    assert list(content["figures"]) == ["performance", "linearized"]
    assert content["figures"]["linearized"]["claims"][0]["numbers"] == {"ratio": None, "seeds": [1, 2]}
    text = (tmp_path / "reproduce.md").read_text()
    assert "| the paper says so | agrees | 0.5 of 1 |" in text
    assert "![linearized](a.png)" in text
    assert "Not drawn" in text
    # Figures of another scale are not mixed with these.
    write_summary(tmp_path, "paper", {"runtime": Drawn()}, FIGURES, {})
    assert list(json.loads((tmp_path / "reproduce.json").read_text())["figures"]) == ["runtime"]
