"""Continual text: where text is found, what a task shows of it, and what is trained and measured on sequences."""

import ast
import dataclasses
import functools
import importlib.metadata
import sysconfig
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import toy_config, toy_problem, toy_replicas, toy_text, train_task

from plastax_benchmarks.cli.run import parse
from plastax_benchmarks.config import configure
from plastax_benchmarks.config.command import arguments_of
from plastax_benchmarks.data import DataError, Section, Text, _text, describe_text, load_text
from plastax_benchmarks.methods import METHODS
from plastax_benchmarks.problems.continual_text import make, windows_of
from plastax_benchmarks.problems.load import load_problem
from plastax_benchmarks.training.examples import some_examples
from plastax_benchmarks.training.losses import hits, losses
from plastax_benchmarks.training.task import Replica, TaskView, Trainer, keys_of


KEY = jax.random.key(3)


# Where text is found


def test_code_is_that_of_the_standard_library():
    text = load_text("code", most=200_000)
    assert text.size == 200_000
    assert text == load_text("code", most=200_000)
    names = [section.name for section in text.sections]
    assert names == sorted(names)
    module = Path(sysconfig.get_path("stdlib")) / f"{names[0]}.py"
    assert text.sections[0].content == module.read_bytes()[:200_000]
    # A smaller text is the beginning of a larger one.
    assert load_text("code", most=5000).size == 5000
    whole = b"".join(section.content for section in text.sections)
    assert whole.startswith(b"".join(section.content for section in load_text("code", most=5000).sections))


def test_docstrings_are_those_of_the_sources():
    text = load_text("docstrings", most=30_000)
    assert text.size == 30_000
    section = next(section for section in text.sections if section.name == "_py_abc")
    source = (Path(sysconfig.get_path("stdlib")) / "_py_abc.py").read_bytes()
    (abc_meta,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    assert ast.get_docstring(abc_meta) in section.content.decode()
    assert b"import" not in section.content


def test_licenses_are_those_of_installed_packages_without_repetitions():
    # A package of the tests whose licenses come with it.
    paths = [file.locate() for file in importlib.metadata.files("numpy") or () if file.name == "LICENSE.txt"]
    assert paths
    contents = [section.content for section in load_text("licenses").sections]
    assert {Path(str(path)).read_bytes() for path in paths} <= set(contents)
    assert len(set(contents)) == len(contents)


def test_every_text_that_comes_with_python_is_listed():
    lines = describe_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["code", "ready"], ["docstrings", "ready"], ["licenses", "ready"]]


def test_a_folder_has_a_section_for_each_file(tmp_path):
    for name, content in {
        "b.txt": b"second",
        "a/z.md": b"first",
        "c.txt": b"second",
        "d.bin": b"a\0b",
        "e": b" ",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    # Repetitions, other formats and empty files are left out.
    assert load_text(folder=tmp_path).sections == (Section("a/z.md", b"first"), Section("b.txt", b"second"))
    assert load_text(folder=tmp_path, most=7).sections[-1].content == b"se"


def test_a_machine_without_text_gives_an_error_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(_text, "_library", lambda: tmp_path / "python.zip")
    with pytest.raises(DataError, match=r"no text in the standard library.*--text-dir.*--text \(code, docstrings"):
        load_text("code")
    with pytest.raises(DataError, match=rf"no text in {tmp_path}: give a folder of text files with --text-dir$"):
        load_text(folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"--text-dir .* is not a folder"):
        load_text(folder=tmp_path / "missing")


# Tasks


def whole_task(problem, data, number, *, held_out=False):
    task = problem.task(data, KEY, jnp.asarray(number))
    rows = task.test if held_out else task.train
    return task, jax.tree.map(np.asarray, problem.examples(data, task, rows.rows, held_out=held_out))


def test_windows_follow_one_another_and_every_tenth_is_held_out():
    train, test = windows_of(Section("one", bytes(8 * 25 + 1)), 8)
    np.testing.assert_array_equal(test, [8 * 9, 8 * 19])
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), 8 * np.arange(25))
    # One byte less, and the last window has no target.
    assert len(np.concatenate(windows_of(Section("one", bytes(8 * 25)), 8))) == 24
    assert len(np.concatenate(windows_of(Section("none", b""), 8))) == 0


def test_a_task_is_the_text_in_numbers_of_its_own():
    text = toy_text()
    problem, data = toy_problem(toy_config("continual-text"))
    content = b"".join(section.content for section in text.sections)
    alphabet = np.unique(np.frombuffer(content, np.uint8))
    assert problem.outputs == len(alphabet) == 12
    seen = []
    for number in range(2):
        for held_out in (False, True):
            task, examples = whole_task(problem, data, number, held_out=held_out)
            np.testing.assert_array_equal(examples.inputs[:, 1:], examples.targets[:, :-1])
            np.testing.assert_array_equal(np.sort(task.view), np.arange(12))
            letters = np.empty(12, np.uint8)
            letters[np.asarray(task.view)] = alphabet
            windows = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1)
            rows = [bytes(letters[row]) for row in windows]
            assert all(row in content for row in rows)
            assert len(rows) == (10 if held_out else 40)
            seen.append((np.asarray(task.view), rows))
    assert not np.array_equal(seen[0][0], seen[2][0])
    assert set(seen[0][1]) != set(seen[2][1])  # Other rows for training,
    assert seen[1][1] == seen[3][1]  # and the same ones for measurements.


def test_held_out_rows_are_never_trained_on():
    problem, data = toy_problem(toy_config("continual-text"))
    assert not set(np.asarray(data.train).tolist()) & set(np.asarray(data.test).tolist())
    parts = np.concatenate([data.train, data.test])
    # Windows stay within their sections.
    assert np.all(parts % 900 + problem.input_shape[0] < 900)


def test_each_section_is_a_task_before_one_comes_again():
    problem, data = toy_problem(toy_config("continual-text", change="text"))
    names = []
    for number in range(8):
        task, _ = whole_task(problem, data, number)
        sections = np.asarray(data.train)[np.asarray(task.train.rows)] // 900
        held_out = np.asarray(data.test)[np.asarray(task.test.rows)] // 900
        np.testing.assert_array_equal(np.unique(np.concatenate([sections, held_out])), sections[:1])
        np.testing.assert_array_equal(task.view, np.arange(12))
        names.append(int(sections[0]))
    assert sorted(names[:4]) == sorted(names[4:]) == [0, 1, 2, 3]
    assert names[:4] != names[4:]


def test_texts_that_are_too_short_are_named():
    settings = toy_config("continual-text").problem
    short = Text("a leaflet", (Section("one", b"to be or not to be"),))
    with pytest.raises(ValueError, match="--train-size 40 needs more text than the 18 bytes of a leaflet"):
        make(settings, short)
    with pytest.raises(ValueError, match="at least two sections need 40 training rows and 10 held-out rows of 8 bytes"):
        make(toy_config("continual-text", change="text").problem, short)


def test_the_preset_finds_its_rows_in_the_text_of_this_machine():
    settings = configure("continual-text").problem
    problem, data = load_problem(settings)
    assert (problem.train_rows, problem.test_rows) == (settings.train_size, settings.test_size)
    assert problem.outputs <= 256
    assert len(data.train) > 10 * settings.train_size


def test_the_preset_has_a_section_of_code_for_each_task():
    settings = configure("continual-text", change="text").problem
    problem, data = load_problem(settings)
    assert problem.sections >= settings.num_tasks >= 10
    assert problem.train_rows == settings.train_size
    assert problem.test_rows >= settings.train_size // 9
    assert len(data.train) == problem.sections * problem.train_rows
    # Those of published results.
    usual = configure("continual-text").problem
    assert (usual.text_size, usual.test_size) == (2_000_000, 400)


def test_small_files_are_tasks_and_a_warning_says_if_they_repeat(tmp_path):
    for number in range(4):
        letters = np.random.default_rng(number).integers(97, 123, 70_000)
        (tmp_path / f"book{number}.txt").write_bytes(bytes(letters.tolist()))
    settings = configure("continual-text", change="text", text_dir=str(tmp_path), num_tasks=4).problem
    problem, _ = load_problem(settings)
    # 2187 windows of 32 bytes in each file.
    assert (problem.sections, problem.train_rows, problem.test_rows) == (4, 800, 218)
    message = r"there are 4 sections with 800 .* so the 5 tasks repeat them: lower --num-tasks, .* or --context$"
    with pytest.warns(UserWarning, match=message):
        load_problem(dataclasses.replace(settings, num_tasks=5))
    with pytest.warns(UserWarning, match=r"there are 2 sections .* or --context, or raise --text-size$"):
        load_problem(dataclasses.replace(settings, text_size=150_000))


def test_commands_have_the_sizes_of_their_kind_of_change():
    config = configure("continual-text", "laptop", "bp", change="text")
    arguments = arguments_of(config)
    assert arguments == ["continual-text", "--preset", "laptop", "--method", "bp", "--change", "text"]
    assert parse("continual-text", arguments[1:]).config == config
    given = parse("continual-text", ["--change=text", "--test-size", "40"]).config.problem
    assert (given.test_size, given.text_size) == (40, config.problem.text_size)


# Training and measurements


def test_loss_and_hits_of_a_sequence_are_means_over_its_tokens():
    problem, _ = toy_problem(toy_config("continual-text"))
    outputs = np.random.default_rng(0).normal(size=(3, 5, 12)).astype(np.float32)
    targets = np.random.default_rng(1).integers(0, 12, (3, 5)).astype(np.int32)
    wide = outputs.astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    expected = [np.mean([-logs[i, t, targets[i, t]] for t in range(5)]) for i in range(3)]
    np.testing.assert_allclose(losses(problem, jnp.asarray(outputs), jnp.asarray(targets)), expected, rtol=1e-5)
    expected = [np.mean([outputs[i, t].argmax() == targets[i, t] for t in range(5)]) for i in range(3)]
    np.testing.assert_allclose(hits(problem, jnp.asarray(outputs), jnp.asarray(targets)), expected, rtol=1e-6)


@functools.cache
def trainer_of(method):
    config = toy_config("continual-text", method)
    problem, data = toy_problem(config)
    return Trainer(problem, config), data


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_a_step_on_a_transformer(method):
    """Roles of parameters, units and features have to fit, and the parameters after a step are finite."""
    trainer, data = trainer_of(method)
    view = TaskView(data, keys_of(0), jnp.asarray(1))
    replica, task = Replica(view.keys, {}), trainer.task(view)
    learner = trainer.init(replica, view.index)
    inputs, targets = trainer.problem.examples(data, task, jnp.arange(4), held_out=False)

    def loss(params):
        outputs, features, _ = trainer.apply(learner._replace(params=params), task, inputs, train=True)
        return jnp.mean(losses(trainer.problem, outputs, targets)), features

    # Not compiled as a whole: methods share most operations, and a program for each would take minutes.
    (value, features), gradients = jax.value_and_grad(loss, has_aux=True)(learner.params)
    updates, state = trainer._optimizer(replica).update(
        gradients, learner.opt_state, learner.params, inputs=inputs, features=features, progress=jnp.zeros(())
    )
    assert 0.5 * np.log(12) < value < 2 * np.log(12)  # A new network has learned nothing about 12 letters.
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (learner.params, learner.opt_state)) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), (updates, state)
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updates))
    if method != "trac":  # Its first step moves nothing.
        assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(updates)) > 0


def test_a_task_is_learned_and_measured_on_every_token():
    config = toy_config("continual-text", "l2_er", seeds=1, learning_rate=1e-2, batch_size=2, er_interval=5)
    trainer, programs = toy_replicas(config)
    learner, totals = train_task(programs, programs.init(0), 0)
    # A byte has one of two successors: log 2 can be reached, and log 12 is chance.
    found = jax.tree.map(lambda leaf: np.asarray(leaf)[0], programs.evaluate(learner, 0))
    assert np.log(2) < found.test_loss < float(totals.loss[0]) / trainer.steps_in(0) < np.log(12) + 1

    view = programs.view(0, 0)
    key = jax.random.fold_in(jax.random.fold_in(view.keys.order, 0), 2)
    task = trainer.task(view)
    examples, weights = some_examples(trainer.problem, view.data, task, key, 40, held_out=True)
    np.testing.assert_array_equal(weights, 1)
    network = eqx.combine(jax.tree.map(lambda leaf: leaf[0], learner.params), trainer.static)
    outputs, features, _ = jax.jit(lambda network, inputs: network(inputs))(network, examples.inputs)
    logs = np.asarray(jax.nn.log_softmax(outputs))
    picked = np.take_along_axis(logs, np.asarray(examples.targets)[..., None], axis=2)
    np.testing.assert_allclose(found.test_loss, -picked.mean(), rtol=1e-4)
    np.testing.assert_allclose(found.test_accuracy, (logs.argmax(2) == examples.targets).mean(), rtol=1e-5)
    assert list(found.effective_rank) == ["block1.mlp"]
    for name, rank in found.effective_rank.items():
        values = np.linalg.svd(np.asarray(features[name], np.float64).reshape(-1, 32), compute_uv=False)
        shares = values[values > 0] / values.sum()
        np.testing.assert_allclose(rank, np.exp(-(shares * np.log(shares)).sum()), rtol=1e-3)
    # Units of MLPs, and no others.
    hidden = np.concatenate([np.asarray(features[name]).reshape(-1, 32) for name in found.effective_rank], axis=1)
    np.testing.assert_allclose(found.dead_fraction, (hidden == 0).all(0).mean(), atol=1e-6)


def test_curvature_of_sequences_is_refused_with_the_reason():
    for name in ("diagnose_every", "epsilon_rank_every"):
        flag = name.replace("_", "-")
        with pytest.raises(ValueError, match=f"--{flag} does not work on continual-text: .*exact Gram matrix"):
            configure("continual-text", **{name: 1})
