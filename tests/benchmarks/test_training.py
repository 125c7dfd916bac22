"""Training against a plain loop: the same steps, written down one after the other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import toy_config, toy_problem, toy_replicas, train_task

import plastax
from plastax_benchmarks._settings import fields_of, is_real
from plastax_benchmarks.methods import METHODS
from plastax_benchmarks.training.examples import epoch_orders
from plastax_benchmarks.training.losses import losses
from plastax_benchmarks.training.members import sweepable
from plastax_benchmarks.training.task import Replica, Trainer, keys_of


def plain_loop(config, seed, tasks):
    """Algorithm 1 as a Python loop over minibatches, with the transformations of core in one optimizer."""
    problem, data = toy_problem(config)
    keys, settings, rank_step = keys_of(seed), config.problem, config.method.rank_step
    options, key = config.method.network_options, jax.random.split(jax.random.fold_in(keys.network, 0))[0]
    network = config.network.make(problem.input_shape, problem.outputs, options, key)
    state = network.init_state(jax.random.split(jax.random.fold_in(keys.network, 0))[1])
    params, static = eqx.partition(network, eqx.is_inexact_array)
    chain = [Trainer(problem, config)._optimizer(Replica(keys, {}))]
    if rank_step is not None:
        shape = jax.ShapeDtypeStruct((settings.batch_size, *problem.input_shape), jnp.float32)
        step = plastax.effective_rank_step(
            lambda params, inputs: eqx.combine(params, static)(inputs, state, train=True)[1],
            rank_step.learning_rate,
            interval=rank_step.interval,
            window=rank_step.window,
            inputs_like=shape,
            layers=network.rank_layers,
        )
        chain.append(step)
    optimizer = optax.chain(*chain)
    opt_state = optimizer.init(params)

    @jax.jit
    def take_step(params, opt_state, task, inputs, targets):
        def loss(params):
            outputs, features, _ = eqx.combine(params, static)(inputs, state, train=True)
            return jnp.mean(losses(problem, problem.active(task, outputs), targets)), features

        (value, features), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_state = optimizer.update(
            gradients, opt_state, params, inputs=inputs, features=features, progress=jnp.zeros(())
        )
        return optax.apply_updates(params, updates), opt_state, value

    means = []
    for number in range(tasks):
        task = problem.task(data, keys.stream, jnp.asarray(number))
        orders = np.asarray(epoch_orders(jax.random.fold_in(keys.order, number), task.train, settings.epochs))
        total, steps = 0.0, 0
        if rank_step is not None or config.method.name == "l2_er_gradient":
            opt_state = plastax.restart_windows(opt_state)
        for order in orders:
            for i in range(int(task.train.count) // settings.batch_size):
                rows = jnp.asarray(order[i * settings.batch_size : (i + 1) * settings.batch_size])
                examples = problem.examples(data, task, rows, held_out=False)
                params, opt_state, value = take_step(params, opt_state, task, *examples)
                total, steps = total + float(value), steps + 1
        means.append(total / steps)
    return params, means


@pytest.mark.parametrize(
    ("problem", "method", "others"),
    [
        ("permuted-mnist", "l2_er", {"weight_decay": 0.01}),
        ("permuted-mnist", "l2_er", {"er_window": 3}),
        ("permuted-mnist", "l2_er_gradient", {"er_weight": 0.1}),
        ("permuted-mnist", "cbp", {"replacement_rate": 0.01, "maturity_threshold": 5}),
        ("slowly-changing-regression", "bp", {"optimizer": "adam"}),
        # Tasks of different lengths, whose steps do not end with a block.
        ("incremental-cifar", "l2_er", {}),
    ],
)
def test_compiled_training_takes_the_steps_of_a_plain_loop(problem, method, others):
    config = toy_config(problem, method, seeds=1, seed=5, **others)
    trainer, programs = toy_replicas(config)
    learner = programs.init(0)
    found = []
    for number in range(2):
        learner, totals = train_task(programs, learner, number)
        found.append(float(totals.loss[0]) / trainer.steps_in(number))
    params, expected = plain_loop(config, 5, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for ours, theirs in zip(jax.tree.leaves(learner.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=2e-3, atol=2e-5)


def test_tasks_of_any_length_share_one_program_and_any_slicing_gives_the_same_bits(monkeypatch):
    config = toy_config("incremental-cifar", "l2_er")
    trainer, programs = toy_replicas(config)
    lengths = [trainer.steps_in(number) for number in range(3)]
    assert lengths == [2 * (36 // 6), 2 * (72 // 6), 2 * (108 // 6)]
    learner = programs.init(0)
    for number in range(2):
        learner, _ = train_task(programs, learner, number)
    whole = programs.train(learner, programs.nothing(), 2, 0, 5)
    sliced = programs.train(*programs.train(learner, programs.nothing(), 2, 0, 2), 2, 2, 5)
    jax.tree.map(np.testing.assert_array_equal, whole, sliced)
    assert programs._train._cache_size() == 1
    # Orders are drawn once for each task, whatever the number of calls.
    with monkeypatch.context() as patch:
        patch.setattr(programs, "_orders", lambda *_: pytest.fail("the orders of a task were drawn twice"))
        programs.train(learner, programs.nothing(), 2, 0, 1)


def test_members_are_what_they_would_be_alone():
    config = toy_config("permuted-mnist", "l2_er")
    _, both = toy_replicas(config)
    _, second = toy_replicas(toy_config("permuted-mnist", "l2_er", seeds=1, seed=1))
    together, _ = train_task(both, both.init(0), 0)
    alone, _ = train_task(second, second.init(0), 0)
    for ours, theirs in zip(jax.tree.leaves(together.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(ours[1], theirs[0], rtol=1e-4, atol=1e-6)
        assert np.ptp(ours[0] - ours[1]) > 0 or not np.any(ours)


def test_swept_settings_are_those_of_each_member():
    config = toy_config("permuted-mnist", "l2", seeds=1)
    own = {"weight_decay": 0.1, "learning_rate": 0.02}
    _, swept = toy_replicas(config, ({"weight_decay": 0.0, "learning_rate": 0.03}, own))
    learner, _ = train_task(swept, swept.init(0), 0)
    norms = jax.vmap(optax.tree_utils.tree_norm)(learner.params)
    assert norms[1] < 0.9 * norms[0]
    _, fixed = toy_replicas(toy_config("permuted-mnist", "l2", seeds=1, **own))
    alone, _ = train_task(fixed, fixed.init(0), 0)
    for ours, theirs in zip(jax.tree.leaves(learner.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(ours[1], theirs[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="same settings"):
        toy_replicas(config, ({}, {"weight_decay": 0.1}))


OTHERS = {
    "momentum": 0.5,
    "beta_1": 0.5,
    "beta_2": 0.5,
    "max_grad_norm": 0.1,
    "decay_rate": 0.0,
    "dormant_threshold": 0.9,
    "spectral_target": 0.1,
}
"""Values of a swept setting that change a run; other settings are made a hundred times as large."""


def all_sweeps(config):
    """Values for all settings that can be swept: those of the run, and then one other value at a time."""
    reals = [name for name, field in sweepable(config).items() if is_real(field)]
    base = {name: config.settings[name] for name in reals} | {"max_grad_norm": 1e6}
    other = {name: OTHERS.get(name, 100 * (value or 1e-5)) for name, value in base.items()} | {
        "learning_rate": config.optimizer.learning_rate / 10
    }
    return [base, *({**base, name: other[name]} for name in base)]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_every_sweep_has_an_effect(method):
    frequent = {
        "cbp": {"maturity_threshold": 5, "replacement_rate": 1e-3},
        "cbp_l2": {"maturity_threshold": 5, "replacement_rate": 1e-3},
        "redo": {"redo_interval": 20},
        "snr": {"threshold_interval": 20, "min_silence": 1, "max_silence": 50},
    }
    config = toy_config("permuted-mnist", method, epochs=10, seeds=1, **frequent.get(method, {}))
    sweeps = all_sweeps(config)
    reals = [name for name, field in fields_of(METHODS[method]).items() if is_real(field)]
    own = {"momentum"} if config.optimizer.name == "sgd" else {"beta_1", "beta_2"}
    assert set(sweeps[0]) == {"learning_rate", "max_grad_norm", *own, *reals}
    trainer, programs = toy_replicas(config, sweeps)
    blocks = trainer.steps_in(0) // trainer.block
    learner, totals = programs.train(programs.init(0), programs.nothing(), 0, 0, blocks)
    # Ten classes: guessing gives 0.1.
    assert totals.correct[0] / (blocks * trainer.block) > 0.25
    leaves = jax.tree.leaves(learner.params)
    assert all(np.isfinite(leaf[0]).all() for leaf in leaves)
    for i, name in enumerate(sweeps[0], start=1):
        assert any(np.any(leaf[i] != leaf[0]) for leaf in leaves), name


def test_a_swept_momentum_is_that_of_the_settings():
    own = {"momentum": 0.5, "max_grad_norm": 2.0}
    config = toy_config("permuted-mnist", "bp", seeds=1, batch_size=6)
    _, swept = toy_replicas(config, ({"momentum": 0.0, "max_grad_norm": 0.5}, own))
    _, alone = toy_replicas(toy_config("permuted-mnist", "bp", seeds=1, batch_size=6, **own))
    learner, single = (programs.train(programs.init(0), programs.nothing(), 0, 0, 1)[0] for programs in (swept, alone))
    for ours, theirs in zip(jax.tree.leaves(learner.params), jax.tree.leaves(single.params), strict=True):
        np.testing.assert_allclose(ours[1], theirs[0], rtol=1e-3, atol=1e-5)


def test_a_task_restarts_the_count_of_adam_in_every_member():
    config = toy_config("permuted-mnist", "adam_rel", seeds=2)
    trainer, programs = toy_replicas(config)
    steps = trainer.steps_in(0)

    def counts(learner):
        kind = plastax.ScaleByResettableAdamState
        nodes = jax.tree.leaves(learner.opt_state, is_leaf=lambda node: isinstance(node, kind))
        return {
            int(count)
            for node in nodes
            if isinstance(node, kind)
            for leaf in jax.tree.leaves(node.count)
            for count in np.ravel(leaf)
        }

    learner, _ = train_task(programs, programs.init(0), 0)
    assert counts(learner) == {steps}
    assert counts(programs.begin_task(learner)) == {0}
    learner, _ = train_task(programs, learner, 1)
    assert counts(learner) == {steps}


def test_annealing_ends_with_steps_of_no_size():
    config = toy_config("permuted-mnist", "bp", anneal=True, seeds=1)
    trainer, programs = toy_replicas(config)
    steps = trainer.steps_in(0)
    learner = programs.init(0)

    def size(start):
        after, _ = programs.train_rest(learner, programs.nothing(), 0, start, start + 1)
        return float(optax.tree_utils.tree_norm(jax.tree.map(jnp.subtract, after.params, learner.params)))

    assert size(steps - 1) < 0.1 * size(0)


def test_hare_and_tortoise_is_measured_at_its_slow_weights():
    config = toy_config("permuted-mnist", "hare_tortoise", seeds=1, slow_rate=0.02, slow_interval=1000, eval_size=200)
    trainer, programs = toy_replicas(config)
    learner, _ = train_task(programs, programs.init(0), 0)
    found = jax.tree.map(lambda leaf: leaf[0], programs.evaluate(learner, 0))
    learner = jax.tree.map(lambda leaf: leaf[0], learner)
    view = programs.view(0, 0)
    task = trainer.task(view)
    slow = optax.tree_utils.tree_get(learner.opt_state, "slow")

    def accuracy(params, rows, held_out):
        examples = trainer.problem.examples(view.data, task, rows.rows, held_out=held_out)
        outputs = eqx.combine(params, trainer.static)(examples.inputs)[0]
        return np.mean(np.argmax(outputs, axis=1) == np.asarray(examples.targets))

    for measured, rows, held_out in (
        (found.test_accuracy, task.test, True),
        (found.train_accuracy, task.train, False),
        (programs.test_accuracy(jax.tree.map(lambda leaf: leaf[None], learner), 0)[0], task.test, True),
    ):
        np.testing.assert_allclose(measured, accuracy(slow, rows, held_out), rtol=1e-6)
        assert measured != accuracy(learner.params, rows, held_out)
    # Everything else is that of the parameters in training.
    np.testing.assert_allclose(found.weight_norm, optax.tree_utils.tree_norm(learner.params), rtol=1e-6)
