import functools
import json

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics
from plastax_benchmarks.config import configure
from plastax_benchmarks.data import Images
from plastax_benchmarks.problems import incremental_cifar, linearized_mnist, permuted_mnist, slowly_changing_regression
from plastax_benchmarks.training.curvature import diagnose, epsilon_rank_at, look, rows_for
from plastax_benchmarks.training.examples import some_examples
from plastax_benchmarks.training.losses import losses
from plastax_benchmarks.training.task import Replica, TaskView, Trainer, keys_of
from plastax_diagnostics import ExactGram
from plastax_diagnostics._spectrum import exact_gram
from plastax_diagnostics._spectrum.exact_gram import count_above


def toy_images(classes, shape, per_class=6):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes, dtype=np.int32), per_class)
    train, test = (rng.integers(0, 256, (len(labels), *shape), np.uint8) for _ in range(2))
    return Images("toy", "toy arrays", train, labels, test, labels)


CASES = {
    "mlp": ("permuted-mnist", permuted_mnist, 10, {"width": 5, "depth": 2}),
    "gated": ("linearized-mnist", linearized_mnist, 10, {"width": 6}),
    "low_rank": ("linearized-mnist", linearized_mnist, 10, {"width": 6, "initial_rank": 2}),
    "convnet": (
        "incremental-cifar",
        incremental_cifar,
        6,
        {"channels": (2, 3), "kernel_sizes": (3, 3), "dense": (5, 4), "classes_per_task": 2, "num_tasks": 3},
    ),
    "regression": ("slowly-changing-regression", slowly_changing_regression, 0, {"train_size": 60, "test_size": 30}),
}


@functools.cache
def learnt(case, method="bp"):
    """A trainer, a learner whose weights are larger than at first, its keys and its data."""
    name, module, classes, others = CASES[case]
    others = {"learning_rate": 0.05, "batch_size": 2, **others}
    settings = configure(name, "laptop", method, diagnose_size=24, **others)
    shape = (8, 8, 3) if case == "convnet" else (4, 4)
    problem, data = module.make(settings.problem, toy_images(classes, shape) if classes else None)
    trainer, keys = Trainer(problem, settings), keys_of(3)
    learner = jax.jit(lambda: trainer.init(Replica(keys, {}), jnp.asarray(0)))()
    return trainer, learner._replace(params=jax.tree.map(lambda leaf: 1.5 * leaf + 0.01, learner.params)), keys, data


def dense_ggn(trainer, learner, task, inputs, weighted=True):
    """sum_n J_n^T H_n J_n / N in float64, with H_n the Hessian of the masked loss by the outputs, by autodiff."""
    problem = trainer.problem
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), (learner.params, learner.model_state)
        )
        flat, unravel = jax.flatten_util.ravel_pytree(wide[0])
        inputs = jnp.asarray(np.asarray(inputs), jnp.float64)

        def outputs_of(flat, row):
            return eqx.combine(unravel(flat), trainer.static)(row[None], wide[1], train=False)[0][0]

        def loss(outputs):
            if problem.loss == "squared_error" or not weighted:
                return 0.5 * jnp.sum(outputs**2)
            masked = problem.active(task, outputs[None])[0]
            return jax.nn.logsumexp(masked)  # Cross-entropy, up to what is linear in the outputs.

        @jax.jit
        def of_row(row):
            jacobian = jax.jacrev(outputs_of)(flat, row)
            return jacobian.T @ jax.hessian(loss)(outputs_of(flat, row)) @ jacobian

        return sum(np.asarray(of_row(row)) for row in inputs) / len(inputs)


def model_of(trainer, learner, keys, data, number):
    classes = trainer.problem.active_classes(data, keys.stream, number)
    outputs = None if classes is None else jnp.asarray(classes, jnp.int32)
    return diagnostics.apply_model(trainer.static, learner.model_state, outputs=outputs)


def gram_matrix(model, loss, params, inputs):
    outputs = jax.eval_shape(model, params, inputs).shape[1]
    # The curvature of both losses does not depend on the targets.
    targets = jnp.zeros(len(inputs), int) if loss == "cross_entropy" else jnp.zeros((len(inputs), outputs))
    operator = diagnostics.loss_weighted_gram(model, loss, params, (inputs, targets), dtype="float64")
    return diagnostics.exact_gram(operator)


@pytest.mark.parametrize(
    ("case", "method"),
    [("mlp", "layernorm_l2"), ("gated", "bp"), ("convnet", "bp"), ("regression", "bp")],
)
def test_the_gram_matrix_has_the_eigenvalues_of_the_gauss_newton_matrix(case, method):
    trainer, learner, keys, data = learnt(case, method)
    task = trainer.problem.task(data, keys.stream, jnp.asarray(1))
    inputs = trainer.problem.examples(data, task, task.test.rows[:10], held_out=True).inputs
    model = model_of(trainer, learner, keys, data, 1)
    found = gram_matrix(model, trainer.problem.loss, learner.params, inputs)
    expected = np.linalg.eigvalsh(dense_ggn(trainer, learner, task, inputs))[::-1]
    values = np.linalg.eigvalsh(found.matrix)[::-1]
    outputs = 4 if case == "convnet" else trainer.problem.outputs
    assert found.matrix.shape == (10 * outputs, 10 * outputs)
    shared = min(len(values), len(expected))
    np.testing.assert_allclose(values[:shared], expected[:shared], atol=1e-10 * expected[0])
    np.testing.assert_allclose(found.largest, expected[0], rtol=1e-5)
    np.testing.assert_allclose(found.trace, expected.sum(), rtol=1e-9)
    for eps in np.sqrt(expected[[0, 2]] * expected[[1, 3]]):  # Between eigenvalues, not next to one.
        assert found.count_above(eps) == np.sum(expected > eps)


def test_gradients_in_blocks_and_in_float32_give_the_same_matrix(monkeypatch):
    trainer, learner, keys, data = learnt("convnet")
    task = trainer.problem.task(data, keys.stream, jnp.asarray(1))
    inputs = trainer.problem.examples(data, task, task.test.rows[:5], held_out=True).inputs
    model = model_of(trainer, learner, keys, data, 1)
    whole = gram_matrix(model, "cross_entropy", learner.params, inputs).matrix
    convolutions = sum(leaf.size for leaf in jax.tree.leaves(learner.params.convs))
    monkeypatch.setattr(exact_gram, "MEMORY", 2 * 4 * convolutions * 7)  # Blocks of 7 of the 20 gradients.
    blocks = gram_matrix(model, "cross_entropy", learner.params, inputs).matrix
    assert np.abs(blocks - whole).max() > 0
    np.testing.assert_allclose(blocks, whole, atol=1e-5 * np.abs(whole).max())


@pytest.mark.parametrize("eps", [-0.5, 0.0, 0.3, 100.0])
def test_counting_by_inertia_is_counting_eigenvalues(eps):
    rng = np.random.default_rng(1)
    for size in (1, 2, 30):
        matrix = rng.normal(size=(size, size))
        matrix = matrix + matrix.T
        assert count_above(matrix, eps) == np.sum(np.linalg.eigvalsh(matrix) > eps)
    hollow = np.array([[0.0, 1.0], [1.0, 0.0]])  # A block of two in D.
    assert count_above(hollow, 0.0) == 1
    low = rng.normal(size=(40, 3))
    assert count_above(low @ low.T, 1e-9) == 3
    assert ExactGram(np.zeros((5, 5)), 1).count_above(1e-9) == 0


def test_a_network_that_has_diverged_is_an_error():
    with pytest.raises(ValueError, match="NaN"):
        count_above(np.array([[np.nan]]), 0.1)
    trainer, learner, keys, data = learnt("mlp")
    broken = learner._replace(params=jax.tree.map(lambda leaf: leaf * jnp.nan, learner.params))
    with pytest.raises(ValueError, match="diverged"):
        list(diagnose(trainer, broken, TaskView(data, keys, jnp.asarray(0))))
    with pytest.raises(ValueError, match="diverged"):
        epsilon_rank_at(trainer, broken, TaskView(data, keys, jnp.asarray(0)))


def test_rows_keep_the_matrix_small():
    params = {"kernel": jax.ShapeDtypeStruct((3, 3, 64, 64), jnp.float32)}
    assert rows_for(10, {}) == 250
    assert rows_for(100, {}) == 30
    assert rows_for(5000, {}) == 1
    assert rows_for(10, {}, most=20) == 20
    large = {"kernel": jax.ShapeDtypeStruct((3, 3, 512, 512), jnp.float32)}
    assert rows_for(5, params) == 250
    assert rows_for(5, large) == 100


@pytest.mark.parametrize("case", ["mlp", "regression"])
def test_a_diagnosis_counts_what_the_dense_matrix_has(case):
    trainer, learner, keys, data = learnt(case)
    lines = {}
    for rows, line, text in diagnose(trainer, learner, TaskView(data, keys, jnp.asarray(1))):
        lines[rows] = line
        report = diagnostics.PlasticityReport.from_json(text)
        assert report.seconds == 0.0
        assert report.samples == line["samples"] == 24
        assert report.eps == line["eps"]
        assert report.layers
        json.dumps(line, allow_nan=False)
        assert line["size"] == line["epsilon_rank_samples"] * trainer.problem.outputs
        # Few enough rows for the report to be about the same matrix: made by products, not by layers.
        np.testing.assert_allclose(report.gram.largest, line["largest"], rtol=1e-3)
        np.testing.assert_allclose(report.gram.trace.value, line["trace"], rtol=1e-3)
        assert report.gram.epsilon_rank.lower <= line["epsilon_rank"] <= report.gram.epsilon_rank.upper
        assert 0 <= line["dead_fraction"] <= 1
    assert list(lines) == ["train", "held_out"]
    assert lines["train"]["largest"] != lines["held_out"]["largest"]
    rank, eps, samples, _ = epsilon_rank_at(trainer, learner, TaskView(data, keys, jnp.asarray(1)), rows=24)
    assert (rank, eps, samples) == (lines["held_out"]["epsilon_rank"], lines["held_out"]["eps"], 24)


def test_the_threshold_is_that_of_the_steps_of_the_task_with_momentum():
    trainer, learner, keys, data = learnt("convnet")
    assert trainer.config.optimizer.momentum == 0.9
    steps = trainer.settings.epochs * (4 * 6 // 2)  # Two tasks, each with two classes of six images; pairs.
    expected = (1 - 1e-3 ** (1 / steps)) / (0.05 / (1 - 0.9))
    assert epsilon_rank_at(trainer, learner, TaskView(data, keys, jnp.asarray(1)))[1] == pytest.approx(expected)
    assert epsilon_rank_at(trainer, learner, TaskView(data, keys, jnp.asarray(1)), values={"learning_rate": 0.1})[
        1
    ] == pytest.approx(expected / 2)
    everything, *_ = epsilon_rank_at(trainer, learner, TaskView(data, keys, jnp.asarray(1)), eps=1e-12)
    assert everything == 3 * 24  # Each row has one direction without curvature: the same for all logits.


def test_targets_are_numbered_among_the_classes_in_play():
    trainer, learner, keys, data = learnt("convnet")
    task = trainer.problem.task(data, keys.stream, jnp.asarray(1))
    key = jax.random.key(5)
    model, examples = look(trainer, learner, TaskView(data, keys, jnp.asarray(1)), key, 12, held_out=True)
    whole, _ = some_examples(trainer.problem, data, task, key, 12, held_out=True)
    np.testing.assert_array_equal(examples.inputs, whole.inputs)
    masked = trainer.apply(learner, task, whole.inputs, train=False)[0]
    np.testing.assert_allclose(
        losses(trainer.problem, model(learner.params, examples.inputs), examples.targets),
        losses(trainer.problem, masked, whole.targets),
        rtol=1e-5,
    )


def test_the_raw_kernel_of_a_linearized_network_is_reported():
    trainer, learner, keys, data = learnt("gated")
    _, line, _ = list(diagnose(trainer, learner, TaskView(data, keys, jnp.asarray(0))))[1]
    task = trainer.problem.task(data, keys.stream, jnp.asarray(0))
    inputs = trainer.problem.examples(data, task, task.test.rows, held_out=True).inputs
    values = np.linalg.eigvalsh(dense_ggn(trainer, learner, task, inputs, weighted=False))
    rows = 60
    assert line["raw_eps"] == pytest.approx((1 - 1e-3 ** (1 / rows)) / 0.05)
    assert 0 < line["raw_epsilon_rank"] <= line["size"]
    # 24 of the 60 held-out rows were looked at.
    assert line["raw_largest"] == pytest.approx(values[-1], rel=0.3)


@pytest.mark.parametrize("case", ["gated", "low_rank"])
def test_both_kernels_of_a_linearized_network_are_counted_at_a_switch(case):
    trainer, learner, keys, data = learnt(case)
    view, key = TaskView(data, keys, jnp.asarray(1)), jax.random.fold_in(jax.random.fold_in(keys.order, 1), 4)
    found = epsilon_rank_at(trainer, learner, view, rows=20)
    _, examples = look(trainer, learner, view, key, 20, held_out=True)
    task = trainer.problem.task(data, keys.stream, jnp.asarray(1))
    raw, weighted = (
        np.linalg.eigvalsh(dense_ggn(trainer, learner, task, examples.inputs, weighted=weighted))
        for weighted in (False, True)
    )
    assert found.raw["raw_largest"] == pytest.approx(raw[-1], rel=1e-6)
    assert found.raw["raw_epsilon_rank"] == np.sum(raw > found.raw["raw_eps"]) > 0
    assert found.count == np.sum(weighted > found.eps)
    # All 60 rows of the training set, each of which is a step.
    assert found.raw["raw_eps"] == pytest.approx((1 - 1e-3 ** (1 / 60)) / 0.05)
    assert found.samples == 20


def test_only_linearized_networks_have_a_raw_kernel():
    trainer, learner, keys, data = learnt("mlp")
    assert epsilon_rank_at(trainer, learner, TaskView(data, keys, jnp.asarray(1)), rows=5).raw == {}


def test_the_same_arguments_give_the_same_lines_and_reports():
    trainer, learner, keys, data = learnt("mlp")
    first, second = (list(diagnose(trainer, learner, TaskView(data, keys, jnp.asarray(2)))) for _ in range(2))
    assert first == second
    assert first != list(diagnose(trainer, learner, TaskView(data, keys, jnp.asarray(3))))
