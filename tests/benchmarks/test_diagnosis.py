"""`plastax bench diagnosis`: its statistics against scipy and formulas, and a tiny run that is interrupted."""

import json
import math

import numpy as np
import pytest
import scipy.stats

import plastax_diagnostics as diagnostics
from plastax_benchmarks.bench import diagnosis
from plastax_benchmarks.bench._diagnosis import collect, measures, points, results, settings
from plastax_benchmarks.bench._diagnosis.analysis import calibration, claim, directions
from plastax_benchmarks.bench._diagnosis.columns import COLUMNS
from plastax_benchmarks.bench._diagnosis.statistics import (
    auc,
    bootstrap,
    lagged_spearman,
    partial_spearman,
    ranks,
    roc_curve,
    spearman,
)


RNG = np.random.default_rng(0)


def test_the_area_under_the_curve_counts_pairs():
    values = np.round(RNG.normal(size=60), 1)  # With ties.
    positive = RNG.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in values[positive] for b in values[~positive]]
    assert auc(values, positive) == pytest.approx(np.mean(pairs))
    statistic = scipy.stats.mannwhitneyu(values[positive], values[~positive]).statistic
    assert auc(values, positive) == pytest.approx(statistic / (positive.sum() * (~positive).sum()))
    false, true = roc_curve(values, positive)
    assert np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2) == pytest.approx(auc(values, positive))
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert auc(np.ones(4), np.array([True, False, True, False])) == 0.5
    assert math.isnan(auc(values, np.zeros(60, bool)))


def test_rank_correlations():
    ties = np.round(RNG.normal(size=30), 1)
    np.testing.assert_array_equal(ranks(ties), scipy.stats.rankdata(ties))
    x = RNG.normal(size=40)
    y = np.round(x + RNG.normal(size=40), 1)
    z = np.round(x + RNG.normal(size=40), 1)
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    xy, xz, yz = spearman(x, y), spearman(x, z), spearman(y, z)
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, [z]) == pytest.approx(expected)
    assert partial_spearman(x, y, []) == pytest.approx(xy)
    # Two controls: the inverse of the matrix of correlations.
    w = RNG.normal(size=40) + y
    inverse = np.linalg.inv(np.corrcoef(np.stack([scipy.stats.rankdata(each) for each in (x, y, z, w)])))
    assert partial_spearman(x, y, [z, w]) == pytest.approx(-inverse[0, 1] / math.sqrt(inverse[0, 0] * inverse[1, 1]))
    assert math.isnan(partial_spearman(x, y, [x]))
    assert math.isnan(spearman(np.ones(5), np.arange(5.0)))
    assert math.isnan(spearman(np.ones(2), np.arange(2.0)))


def test_lagged_correlations_find_the_delay():
    first = [RNG.normal(size=12) for _ in range(3)]
    second = [np.concatenate([[0.0], each[:-1]]) for each in first]  # One moment later.
    found = {lag: lagged_spearman(first, second, lag) for lag in (-1, 0, 1, 2)}
    assert found[1] > 0.95
    assert max(abs(found[lag]) for lag in (-1, 0, 2)) < 0.6
    assert lagged_spearman(second, first, -1) == pytest.approx(found[1])
    assert lagged_spearman(first[:1], second[:1], 0) == pytest.approx(spearman(first[0], second[0]))
    # Differences between series do not count.
    shifted = [each + 100 * i for i, each in enumerate(second)]
    assert lagged_spearman(first, shifted, 1) == pytest.approx(found[1])
    assert math.isnan(lagged_spearman([np.ones(3)], [np.ones(3)], 0))
    assert math.isnan(lagged_spearman([np.ones(2)], [np.ones(2)], 2))


def test_the_bootstrap_draws_groups():
    values = np.repeat([0.0, 1.0, 2.0, 3.0], 25)
    found = bootstrap(lambda rows: float(values[rows].mean()), np.repeat(np.arange(4), 25).tolist())
    assert found.value == 1.5
    # The mean of four draws of four numbers, not of a hundred: standard deviation 0.56.
    assert found.upper - found.lower == pytest.approx(4 * 0.56, rel=0.2)
    single = bootstrap(lambda rows: float(values[rows].mean()), ["one"] * 100)
    assert single.value == 1.5
    assert math.isnan(single.lower)
    assert str(bootstrap(lambda rows: float("nan"), [1, 2])) == "n/a"


def row(task, fresh, *, reached=0.9, trial=1.0, rank=50.0, method="bp", half="test", seed=0, **changes):
    names = {"setting": half, "half": half, "method": method, "seed": seed, "task": task, "fresh": fresh}
    values = dict.fromkeys(COLUMNS, 1.0) | {
        "base_loss": 2.0,
        "trial_loss_1000": 2.0 - trial,
        "ntk_effective_rank": rank,
    }
    results = {"constant_accuracy": 0.1, "constant_loss": 2.0, "reached_accuracy": reached, "reached_loss": 0.5}
    return values | results | names | changes


def test_a_network_is_compared_with_new_ones_on_its_task():
    rows = [
        row(1, -1, reached=0.5, trial=0.25, rank=25.0),
        row(1, 0, reached=0.8, trial=1.0),
        row(1, 1, reached=1.0, trial=1.0),
        row(2, -1),  # Without new networks beside it.
    ]
    (point,) = points.points_of(rows, "test")
    assert point.outcome == pytest.approx(0.4 / 0.8)
    assert point.impaired
    assert points.score(point) == pytest.approx(0.25)
    assert points.gain_ratio(point, "trial_loss_300") == pytest.approx(1.0)
    assert points.single(point, "ntk_effective_rank") == pytest.approx(math.log(0.5))
    assert points.single(point, "dead") == 0
    assert points.points_of(rows, "choice") == []
    regression = row(1, -1, constant_accuracy=math.nan, reached_loss=0.8)
    assert points.learned(regression) == pytest.approx(1.2)
    assert points.learned(row(1, -1, reached=math.nan)) == 0
    diverged = point._replace(row=rows[0] | {"trial_loss_1000": math.inf})
    assert points.score(diverged) == 0


def test_new_networks_of_other_methods_were_measured_once():
    rows = [row(1, place) for place in (0, 1)]
    unmeasured = {name: math.nan for name in COLUMNS if name not in collect.NAMES}
    own = [row(1, place, method="l2", reached=0.4) for place in (0, 1)]
    own = [each | (unmeasured | {"reached_accuracy": 0.4, "constant_accuracy": 0.1}) for each in own]
    (point,) = points.points_of([*rows, *own, row(1, -1, method="l2", reached=0.4)])
    assert point.outcome == pytest.approx(1.0)  # Compared with new networks of the same method.
    assert points.score(point) == pytest.approx(1.0)


def series(strength):
    """Networks whose score is what they then reach, with other measures that are noise."""
    rng = np.random.default_rng(1)
    rows = []
    for half in ("choice", "test"):
        for seed in range(3):
            for task in range(6):
                able = 0.4 + rng.random()
                noise = {name: float(rng.random()) for name in ("dead", "effective_rank", "hessian_rank", "ggn_rank")}
                rows.append(
                    row(task, -1, half=half, seed=seed, reached=0.1 + 0.8 * able, trial=able, rank=50 * able)
                    | noise
                    | {"weight_norm": math.exp(-strength * able)}
                )
                rows += [row(task, place, half=half, seed=seed) for place in (0, 1)]
    return rows


def test_the_analysis_finds_what_predicts(monkeypatch, tmp_path):
    monkeypatch.setattr("plastax_benchmarks.bench._diagnosis.analysis.bootstrap", few_draws)
    found = results.analyze(series(1.0))
    assert found["directions"]["weight_norm"] == -1
    for half in ("choice", "test"):
        for name in (points.SCORE, "weight_norm"):
            assert found[half]["predictors"][name]["auc across"].value == 1
            assert found[half]["predictors"][name]["spearman within"].value == pytest.approx(1)
        assert found[half]["predictors"]["dead"]["auc across"].value < 0.9
        assert found[half]["mean absolute error"] < 0.05
    first = results.table_rows(found, "test")[0]
    assert first["measure"] == "plasticity (the score)"
    assert first["auc across"].startswith("1.00")
    assert len(results.claim_rows(found)) == 2 * 5 + 2 * 2 + 2 * 2
    json.dumps(results.as_json(found), allow_nan=False)
    # The directions of the choice half hold for the test half, where they may be wrong.
    turned = [
        each | ({"weight_norm": 1 / each["weight_norm"]} if each["half"] == "test" else {}) for each in series(1.0)
    ]
    assert results.analyze(turned)["test"]["predictors"]["weight_norm"]["auc across"].value == 0


def few_draws(statistic, groups):
    return bootstrap(statistic, groups, resamples=10)


def test_the_claim_is_found_where_it_holds(monkeypatch):
    monkeypatch.setattr("plastax_benchmarks.bench._diagnosis.analysis.bootstrap", few_draws)
    rng, rows = np.random.default_rng(2), []
    for seed in range(4):
        able = rng.random(9)
        for task in range(8):
            # The epsilon-rank shows what is reached one task later.
            rows.append(row(task, -1, seed=seed, reached=0.1 + 0.8 * able[task], hessian_rank=able[task + 1] + 0.1))
            rows += [row(task, place, seed=seed) for place in (0, 1)]
    found = claim(points.points_of(rows))
    lagged = {lag: value.value for lag, value in found["lagged"]["hessian_rank"].items()}
    assert max(lagged, key=lagged.get) == "1"
    assert lagged["1"] > 0.95
    assert found["networks"] == 4


def test_calibration_and_directions():
    scores, outcomes = np.array([0.0, 0.2, 0.3, 0.9]), np.array([0.1, 0.2, 0.4, 1.0])
    found = calibration(scores, outcomes)
    assert [each["count"] for each in found] == [1, 2, 0, 1]
    assert found[1]["outcome"] == pytest.approx(0.3)
    assert found[2]["outcome"] is None
    assert directions({"a": scores, "b": -scores}, outcomes) == {"a": 1, "b": -1}


TINY = settings.Setting(
    "tiny",
    "choice",
    "slowly-changing-regression",
    {"width": 4, "depth": 1, "train_size": 60, "test_size": 20, "batch_size": 10, "num_tasks": 3},
    every=1,
)


def test_a_run_that_is_interrupted_ends_with_the_same_rows(monkeypatch, tmp_path, capsys):
    for module, name, value in (
        (diagnosis, "SETTINGS", (TINY,)),
        (settings, "METHODS", ("bp",)),
        (collect, "METHODS", ("bp",)),
        (collect, "FRESH", 2),
        (measures, "DENSE", measures.Work(20, 4, 5)),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(diagnosis, "keep_compiled_programs", lambda: None)
    monkeypatch.setattr("plastax_benchmarks.bench._diagnosis.analysis.bootstrap", few_draws)
    diagnosis.main(["--out", str(tmp_path), "--seeds", "1"])
    table, metadata = tmp_path / "points.csv", json.loads((tmp_path / "metadata.json").read_text())
    first = collect.read_rows(table)
    assert [(int(each["task"]), int(each["fresh"])) for each in first] == [
        (task, place) for task in (1, 2) for place in (-1, 0, 1)
    ]
    assert set(collect.header(table)) == set(metadata["columns"]) == set(COLUMNS)
    assert metadata["configurations"]["tiny"]["bp"]["width"] == 4
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "analysis.json").read_text())["choice"]["points"] == 2
    assert "choice half: 2 networks" in capsys.readouterr().out

    # A kill in the middle of the fourth row.
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:4]) + lines[4][:20])
    diagnosis.main(["--out", str(tmp_path), "--seeds", "1", "--json"])
    again = collect.read_rows(table)
    for old, new in zip(first, again, strict=True):
        assert {name: value for name, value in old.items() if name != "seconds"} == pytest.approx(
            {name: value for name, value in new.items() if name != "seconds"}, nan_ok=True
        )
    assert json.loads(capsys.readouterr().out)["choice"]["points"] == 2
    with pytest.raises(SystemExit, match="there are no rows"):
        diagnosis.main(["--out", str(tmp_path / "empty"), "--analyze"])


def test_the_score_of_the_table_is_that_of_the_package():
    """From the columns of a row, and from the function that users call."""
    import jax
    import jax.numpy as jnp

    def model(params, inputs):
        return jnp.tanh(inputs @ params["in"]) @ params["out"]

    def init(key):
        return {"in": jax.random.normal(key, (4, 6)), "out": jax.random.normal(key, (6, 3))}

    data = (jax.random.normal(jax.random.key(1), (20, 4)), jnp.arange(20) % 3)
    budget, drawn = diagnostics.StepBudget(0.2, 25), []

    def fresh(key):
        drawn.append(init(key))
        return drawn[-1]

    own = init(jax.random.key(3))
    found = diagnostics.plasticity_score(model, "cross_entropy", own, data, budget, fresh=fresh)

    def as_row(params, place):
        losses = diagnostics.trial_training(model, "cross_entropy", params, data, budget).losses
        base = measures.baseline("cross_entropy", data[1])["loss"]
        return row(1, place, trial=0.0) | {"base_loss": base, "trial_loss_1000": losses[-1]}

    (point,) = points.points_of([as_row(own, -1), *(as_row(each, place) for place, each in enumerate(drawn))])
    assert points.score(point) == pytest.approx(found.value, rel=1e-4)
