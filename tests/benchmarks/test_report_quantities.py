"""Which measures a report shows, and the main one, which `plastax best` shares."""

import numpy as np
import pytest
from report_support import EIGHT, group_of, summary, table, write_ant, write_run

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.cli.report import report
from plastax_benchmarks.report.best import best_of
from plastax_benchmarks.report.curves import panels


ALL = {"test_accuracy": 0.5, "train_accuracy": 0.75, "loss": 1.0, "test_loss": 2.0}


@pytest.mark.parametrize(
    ("problem", "epochs", "expected"),
    [
        ("permuted-mnist", 1, ["online_accuracy", "test_accuracy"]),
        ("permuted-mnist", 20, ["online_accuracy", "test_accuracy", "train_accuracy"]),
        ("continual-imagenet", 20, ["test_accuracy", "online_accuracy", "train_accuracy"]),
        ("incremental-cifar", 20, ["test_accuracy", "online_accuracy", "train_accuracy"]),
        # If labels are random, accuracy on held-out rows means nothing.
        ("random-label-mnist", 20, ["train_accuracy", "online_accuracy"]),
        # Losses of language models are nats per byte.
        ("continual-text", 1, ["online_accuracy", "test_accuracy", "loss", "test_loss"]),
        ("chess", 1, ["online_accuracy", "test_accuracy"]),
    ],
)
def test_the_main_quantity_comes_first_here_and_in_best(tmp_path, problem, epochs, expected):
    folder = write_run(tmp_path / "a", EIGHT, config={"problem": problem, "epochs": epochs}, **ALL)
    assert list(summary(folder)["quantities"]) == expected
    assert summary(folder)["main"]["field"] == expected[0]
    assert [method.quantity for method in best_of(tmp_path).methods] == expected[:1]


def test_regression_goes_by_the_loss_and_the_ant_by_the_reward(tmp_path):
    nothing = dict.fromkeys(ALL) | {"loss": 1.0, "test_loss": 2.0}
    write_run(tmp_path / "a" / "bits", [[None] * 4], config={"problem": "slowly-changing-regression"}, **nothing)
    write_ant(tmp_path / "b" / "ant")
    for folder, expected in (("a", ["loss", "test_loss"]), ("b", ["reward", "return", "episode_length"])):
        (run,) = (tmp_path / folder).iterdir()
        assert list(summary(run)["quantities"]) == expected
        assert [method.quantity for method in best_of(tmp_path / folder).methods] == expected[:1]


@pytest.mark.parametrize(
    ("problem", "asked", "titles"),
    [
        ("permuted-mnist", None, ["online accuracy", "test accuracy"]),
        ("continual-imagenet", None, ["test accuracy", "online accuracy"]),
        ("continual-imagenet", "train_accuracy", ["training accuracy at the end", "test accuracy"]),
        ("random-label-mnist", None, ["training accuracy at the end", "online accuracy"]),
    ],
)
def test_the_figure_begins_with_the_main_quantity_and_has_the_test_accuracy(tmp_path, problem, asked, titles):
    folder = write_run(tmp_path / "a", EIGHT, config={"problem": problem, "epochs": 2}, **ALL)
    assert [panel.title for panel in panels(group_of(folder), quantity=asked)] == titles


def test_another_quantity_can_be_chosen(tmp_path, capsys):
    folder = write_run(tmp_path / "a", EIGHT, test_accuracy=lambda seed, task: 0.25 + seed / 2)
    whole = summary(folder, quantity="test_accuracy")
    assert table(whole, "comparison by test accuracy").rows[0][1].startswith("0.500 (0.250 to 0.750)")
    np.testing.assert_allclose(whole["lines"][0]["comparison"]["seeds"], [0.25, 0.75])
    with pytest.raises(
        UsageError, match=r"digits \(laptop\) have no quantity 'loss': choose one of online_accuracy, te"
    ):
        summary(folder, quantity="loss")
    with pytest.raises(SystemExit, match=r"plastax report: .*'test_acuracy': did you mean test_accuracy\? choose one"):
        report([folder], quantity="test_acuracy")
    report([folder], tmp_path / "out", quantity="test_accuracy")
    assert "comparison by test accuracy" in " ".join(capsys.readouterr().out.split())
