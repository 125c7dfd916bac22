"""The demo: four runs, a table, a sentence and a figure."""

import io
import json

import numpy as np
import pytest
from json_lines import write_lines
from rich.console import Console

from plastax_benchmarks.cli import demo
from plastax_benchmarks.cli._processes import run_in_processes
from plastax_benchmarks.config import configure


def made_up(first, last):
    accuracy = np.linspace(first, last, 10)[:, None] + np.array([0.0, 0.02])
    ends = accuracy[[0, -1]]
    names = {"online_accuracy": accuracy, "dead_fraction": 1 - accuracy, "effective_rank": 40 * accuracy}
    return names | {"epsilon_rank": 100 * ends}


def test_summary_table_sentence_and_figure(tmp_path):
    results = {"bp": made_up(0.8, 0.4), "l2_er": made_up(0.8, 0.75)}
    summary = demo.summarize(results, seconds=1.0)
    first = summary["methods"]["bp"]["first_accuracy"]
    np.testing.assert_allclose(first["mean"], np.linspace(0.8, 0.4, 10)[:5].mean() + 0.01)
    spread = np.std([0.0, 0.02], ddof=1)
    np.testing.assert_allclose(first["spread"], spread)
    # The 97.5 % point of Student's t with one degree of freedom is 12.706.
    np.testing.assert_allclose(first["interval"], 12.706 * spread / np.sqrt(2), rtol=1e-4)
    np.testing.assert_allclose(summary["methods"]["bp"]["epsilon_rank_last"]["mean"], 41.0)
    assert json.loads(json.dumps(summary)) == summary
    assert demo.table(summary).row_count == 2
    shown = Console(file=io.StringIO(), width=80)
    large = {"mean": 1999.5, "spread": 123.4}
    ranks = {
        "effective_rank": {"mean": 99.94, "spread": 12.34},
        "epsilon_rank_first": large,
        "epsilon_rank_last": large,
    }
    shown.print(demo.table(summary | {"methods": {"l2_er_gradient": summary["methods"]["bp"] | ranks}}))
    assert "…" not in shown.file.getvalue()
    assert "2000±123" in shown.file.getvalue()
    assert "changed by -0.222 with plain backprop" in demo.sentence(summary)
    assert "the best method at the end was l2_er" in demo.sentence(summary)
    demo.plot(results, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_one_seed_has_no_spread():
    one = {name: values[:, :1] for name, values in made_up(0.8, 0.4).items()}
    summary = demo.summarize({"bp": one, "l2_er": one}, seconds=1.0)
    assert summary["methods"]["bp"]["last_accuracy"]["spread"] is None
    assert demo.table(summary).row_count == 2


def test_seeds_that_diverged_are_left_out(tmp_path):
    row = {"online_accuracy": 0.5, "dead_fraction": 0.0, "effective_rank": {"dense1": 3.0, "dense2": 5.0}}
    rows = [{"task": task, "seed": 0, **row} for task in range(2)]
    rows += [{"task": 0, "seed": 1, **row}, {"task": 1, "seed": 1, "failed": True, **dict.fromkeys(row)}]
    lines = [{"task": 1, "seed": 0, "epsilon_rank": 7}]
    for name, stream in {"metrics": rows, "diagnostics": lines}.items():
        write_lines(tmp_path / f"{name}.jsonl", stream)
    curves = demo.read_curves(tmp_path)
    assert {name: values.tolist() for name, values in curves.items()} == {
        "online_accuracy": [[0.5], [0.5]],
        "dead_fraction": [[0.0], [0.0]],
        "effective_rank": [[4.0], [4.0]],
        "epsilon_rank": [[7]],
    }


def test_the_whole_demo_at_a_small_scale(tmp_path, monkeypatch):
    small = {"train_size": 300, "test_size": 60, "width": 12, "epsilon_rank_rows": 20}
    monkeypatch.setattr(demo, "SHOWN", ("bp", "l2_er"))
    monkeypatch.setattr(demo, "configure", lambda *names, **others: configure(*names, **{**others, **small}))
    monkeypatch.setattr(demo.os, "sched_getaffinity", lambda process: {0}, raising=False)  # No processes: see below.
    summary = demo.run_demo(tmp_path, tasks=10, seeds=1)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    for method in ("bp", "l2_er"):
        numbers = summary["methods"][method]
        # Ten classes, and 300 digits one at a time: better than guessing.
        assert 0.15 < numbers["first_accuracy"]["mean"] < 0.9
        assert 0 < numbers["epsilon_rank_first"]["mean"] <= 200
    # Everything is there: the second time only reads.
    again = demo.run_demo(tmp_path, tasks=10, seeds=1)
    assert again["methods"] == summary["methods"]


def test_a_run_that_fails_stops_the_others_and_is_named(tmp_path):
    small = {"width": 12, "train_size": 300, "test_size": 60}
    configs = [
        configure("permuted-mnist", "laptop", method, num_tasks=tasks, out=tmp_path / method, **small)
        for method, tasks in (("bp", 100_000), ("l2", 10))
    ]
    # Something else is in the place of the second run.
    configs[1].out.write_text("not a folder")
    shown = Console(file=io.StringIO(), width=200)
    with pytest.raises(ValueError, match=r"the run of l2 failed:\n(.*\n)*.*l2"):
        run_in_processes(configs, shown, at_once=2, cores=2)
    assert "the run of bp" not in shown.file.getvalue()


def test_mistakes_get_a_word(tmp_path):
    with pytest.raises(ValueError, match="--tasks must be at least 10"):
        demo.run_demo(tmp_path, tasks=3)
