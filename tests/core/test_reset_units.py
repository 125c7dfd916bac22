"""What an optimizer remembers of a unit goes with it, and descriptions of units that do not fit are refused."""

from fractions import Fraction
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import plastax


WIDTH, GONE = 5, 3
STAY = np.arange(WIDTH) != GONE


def describe(**outgoing):
    return plastax.Units(
        "hidden",
        (plastax.Incoming(lambda p: p["w1"], 1), plastax.Incoming(lambda p: p["b1"], 0, fill=0.0)),
        (plastax.Outgoing(**{"where": lambda p: p["w2"], "axis": 0, "bias": lambda p: p["b2"]} | outgoing),),
    )


def normal(seed, shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def sevens(key, shape, dtype):
    return jnp.full(shape, 7.0, dtype)


def make_params():
    return {
        "w1": normal(0, (3, WIDTH)),
        "b1": jnp.ones(WIDTH),
        "w2": normal(1, (WIDTH, 2)),
        "b2": jnp.ones(2),
    }


def is_kernel(params):
    return jax.tree.map(lambda p: p.ndim == 2, params)


OPTIMIZERS = {
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "optax adam": lambda: optax.adam(0.1),
    "adam": lambda: plastax.resettable_adam(0.1),
    "chain": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.add_decayed_weights(0.1), plastax.resettable_adam(0.1)
    ),
    "schedule": lambda: optax.sgd(optax.linear_schedule(0.1, 0.0, 10), momentum=0.9),
    "lion": lambda: optax.lion(0.1),
    "injected": lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.1, momentum=0.9),
    "masked": lambda: optax.masked(plastax.resettable_adam(0.1), is_kernel),
    "multi": lambda: optax.multi_transform(
        {"a": optax.sgd(0.1, 0.9), "b": plastax.resettable_adam(0.1)}, {"w1": "a", "b1": "b", "w2": "b", "b2": "a"}
    ),
    "muon": lambda: optax.contrib.muon(0.1),
    "schedule-free": lambda: optax.contrib.schedule_free_sgd(0.1),
    "multi-steps": lambda: optax.MultiSteps(optax.sgd(0.1, 0.9), 2).gradient_transformation(),
}


def entry_counts(node):
    """The counts of our Adam, one for each entry."""
    return reduce(np.minimum.outer, map(np.asarray, node.axes)) if isinstance(node, plastax.AxisCounts) else node


def by_parameter(state):
    """The leaves of a state that are about a parameter, by its name and their number."""
    found = {}
    state = jax.tree.map(entry_counts, state, is_leaf=lambda node: isinstance(node, plastax.AxisCounts))
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        names = [entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)]
        names = [name for name in names if name in ("w1", "b1", "w2", "b2")]
        found[jax.tree_util.keystr(path)] = (names[-1] if names else None, leaf)
    return found


@pytest.mark.filterwarnings("ignore:continual_backprop wraps an Adam of optax")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_forgets_the_unit_and_nothing_else(name):
    params = make_params()
    features = {"hidden": jnp.ones((2, WIDTH)).at[:, GONE].set(0.0)}
    inner = OPTIMIZERS[name]()
    plain = optax.with_extra_args_support(inner)
    # Mature after the third step, when the dead unit is the one that goes.
    cbp = plastax.continual_backprop(
        inner, [describe()], replacement_rate=0.2, maturity_threshold=2, key=jax.random.key(0), unit_init=sevens
    )

    def run(optimizer):
        @jax.jit
        def scan(params):
            def step(carry, i):
                params, state = carry
                grads = jax.tree.map(lambda p: jnp.cos(i + jnp.arange(p.size)).reshape(p.shape), params)
                updates, state = optimizer.update(grads, state, params, features=features)
                return (optax.apply_updates(params, updates), state), None

            return jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(3.0))[0]

        return scan(params)

    with jax.numpy_dtype_promotion("standard"):  # optax's own optimizers mix types.
        before, expected = run(plain)
        after, state = run(cbp)
        fresh = inner.init(after)
    np.testing.assert_array_equal(state.layers[0].age, np.where(STAY, 3, 0))
    np.testing.assert_array_equal(after["w2"][GONE], 0.0)
    np.testing.assert_allclose(after["w1"][:, STAY], before["w1"][:, STAY], rtol=1e-4, atol=1e-5)

    expected, fresh, forgotten = by_parameter(expected), by_parameter(fresh), 0
    for path, (parameter, leaf) in by_parameter(state.inner_state).items():
        leaf, old, new = (np.asarray(x) for x in (leaf, expected[path][1], fresh[path][1]))
        assert leaf.dtype == old.dtype
        gone = np.zeros(leaf.shape, bool)
        if parameter is not None and leaf.shape == params[parameter].shape:
            gone[{"w1": np.s_[:, GONE], "b1": GONE, "w2": GONE, "b2": np.s_[:0]}[parameter]] = True
            forgotten += np.abs(np.asarray(old, float) - np.asarray(new, float))[gone].sum() > 0
        np.testing.assert_allclose(leaf, np.where(gone, new, old), rtol=1e-5, atol=1e-6, err_msg=path)
    assert forgotten >= 2


@pytest.mark.filterwarnings("ignore:continual_backprop wraps an Adam of optax")
def test_the_first_steps_of_a_new_unit_under_adam():
    """With counts of its own its first step has the length of the learning rate; with optax's, three times that."""
    params = make_params()
    features = {"hidden": jnp.ones((2, WIDTH)).at[:, GONE].set(0.0)}
    # One replacement in 40 steps: 0.2 x 5 units at the first step after maturity.
    lengths = {}
    for name, adam in (("ours", plastax.resettable_adam(0.1)), ("optax", optax.adam(0.1))):
        optimizer = plastax.continual_backprop(
            adam, [describe()], replacement_rate=0.2, maturity_threshold=39, key=jax.random.key(0), unit_init=sevens
        )
        with jax.numpy_dtype_promotion("standard"):
            state = optimizer.init(params)
            update = jax.jit(
                lambda state, optimizer=optimizer: optimizer.update(params, state, params, features=features)
            )
            for _ in range(40):
                _, state = update(state)
            assert state.layers[0].age[GONE] == 0
            updates, state = update(state)
        lengths[name] = np.abs(updates["w1"][:, GONE])
        np.testing.assert_allclose(np.abs(updates["w1"][:, STAY]), 0.1, rtol=1e-4)
    np.testing.assert_allclose(lengths["ours"], 0.1, rtol=1e-4)
    corrected = (0.1 / (1 - 0.9**41)) / np.sqrt(0.001 / (1 - 0.999**41))
    np.testing.assert_allclose(lengths["optax"], 0.1 * corrected, rtol=1e-3)


def test_warns_of_an_adam_with_one_count_for_all():
    params = make_params()
    for adam in (optax.adam(0.1), optax.chain(optax.clip(1.0), optax.adamw(0.1))):
        with pytest.warns(UserWarning, match=r"redo wraps an Adam of optax .* Use plastax\.resettable_adam"):
            plastax.redo(adam, describe(), key=jax.random.key(0)).init(params)
    # Without a warning: it holds biases only, or each entry has its own count.
    muon = optax.contrib.muon(0.1)
    for good in (muon, plastax.resettable_adam(0.1), optax.lion(0.1)):
        plastax.redo(good, describe(), key=jax.random.key(0)).init(params)


def test_an_array_hidden_by_a_mask_is_named():
    labels = {"w1": "body", "b1": "body", "w2": "head", "b2": "head"}
    cbp = plastax.continual_backprop(optax.sgd(0.1), describe(), replacement_rate=0.1, key=jax.random.key(0))
    message = r"outgoing\[0\]: the array is hidden from continual_backprop by .*: wrap it around instead"
    with pytest.raises(ValueError, match=message):
        optax.multi_transform({"body": cbp, "head": optax.sgd(0.1)}, labels).init(make_params())
    nested = {"a": {"w1": jnp.ones((3, WIDTH))}, "head": {"w2": jnp.ones((WIDTH, 2))}}
    units = plastax.Units(
        "hidden", plastax.Incoming(lambda p: p["a"]["w1"], 1), plastax.Outgoing(lambda p: p["head"]["w2"], 0)
    )
    cbp = plastax.continual_backprop(optax.sgd(0.1), units, replacement_rate=0.1, key=jax.random.key(0))
    with pytest.raises(ValueError, match=message):
        optax.masked(cbp, {"a": True, "head": False}).init(nested)


def test_frozen_arrays_of_units_are_refused_and_others_are_left_alone():
    params = make_params() | {"other": jnp.ones(2)}
    features = {"body": {"hidden": jnp.ones((2, WIDTH)).at[:, GONE].set(0.0)}}
    # Names of nested features are paths.
    units = plastax.Units("body/hidden", describe().incoming, describe().outgoing)
    optimizer = plastax.redo(optax.sgd(0.1), units, interval=1, key=jax.random.key(0))
    state = optimizer.init(params)
    updates, state = optimizer.update(params | {"other": None}, state, params, features=features)
    assert updates["other"] is None
    np.testing.assert_array_equal((params["w2"] + updates["w2"])[GONE], 0)
    np.testing.assert_array_equal(state.replaced, [1])
    with pytest.raises(ValueError, match="units of 'body/hidden' has no gradient"):
        optimizer.update(params | {"w2": None}, state, params, features=features)
    with pytest.raises(ValueError, match=r"no features 'body/hidden': `features` holds \['0', '1'\]"):
        optimizer.update(params, state, params, features=(jnp.ones((2, WIDTH)), jnp.ones((2, WIDTH))))


def test_the_account_agrees_with_exact_arithmetic():
    """Round rates: the sum of 0.1 ten times is 1, in whatever order and precision it is computed."""
    params = {"w1": jnp.ones((1, 10)), "w2": jnp.ones((10, 1))}
    units = plastax.Units("h", plastax.Incoming(lambda p: p["w1"], 1), plastax.Outgoing(lambda p: p["w2"], 0))
    steps = 40
    for rate in (Fraction(1, 100), Fraction(3, 100), Fraction(7, 1000)):
        optimizer = plastax.continual_backprop(
            optax.sgd(0.0), units, replacement_rate=float(rate), maturity_threshold=0, key=jax.random.key(0)
        )
        # All units are mature again one step after they were new.
        account, expected = Fraction(0), []
        for _ in range(steps):
            account += rate * 10
            expected.append(account.numerator // account.denominator)

        def step(state, _, optimizer=optimizer):
            _, state = optimizer.update(params, state, params, features={"h": jnp.ones((1, 10))})
            return state, state.replaced[0]

        _, replaced = jax.lax.scan(step, optimizer.init(params), length=steps)
        np.testing.assert_array_equal(replaced, expected)


@pytest.mark.parametrize("name", ["adafactor", "sm3", "flatten"])
def test_optimizers_that_cannot_forget_one_unit_are_refused(name):
    optimizer = {
        "adafactor": lambda: optax.adafactor(0.1),
        "sm3": lambda: optax.sm3(0.1),
        "flatten": lambda: optax.flatten(optax.sgd(0.1, 0.9)),
    }[name]()
    cbp = plastax.continual_backprop(optimizer, [describe()], replacement_rate=0.2, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"continual_backprop cannot .*plastax\.resettable_adam"):
        cbp.init(make_params())


def test_the_order_of_the_layers_does_not_matter():
    def layer(i):
        return plastax.Units(
            f"h{i}",
            (plastax.Incoming(lambda p: p[i][0], 1), plastax.Incoming(lambda p: p[i][1], 0, fill=0.0)),
            (plastax.Outgoing(lambda p: p[i + 1][0], 0, bias=lambda p: p[i + 1][1]),),
        )

    params = [(normal(seed, (4, 4)), jnp.ones(4)) for seed in range(3)]
    features = {f"h{i}": normal(3 + i, (6, 4)) for i in range(2)}

    def step(units):
        optimizer = plastax.continual_backprop(
            optax.sgd(0.1, 0.9),
            units,
            replacement_rate=0.5,
            maturity_threshold=0,
            key=jax.random.key(0),
            unit_init=sevens,
        )
        return jax.jit(optimizer.update)(params, optimizer.init(params), params, features=features)[0]

    forwards, backwards = step([layer(0), layer(1)]), step([layer(1), layer(0)])
    for ours, theirs in zip(jax.tree.leaves(forwards), jax.tree.leaves(backwards), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # Two programs, which may round differently.
    kernel = np.asarray(params[1][0] + forwards[1][0])
    new = np.isclose(kernel, 7.0)
    assert new.all(axis=0).sum() == 2  # two units of the second layer, with whole kernels
    assert ((kernel == 0) | new).all(axis=1).sum() == 2  # read by nobody else: two units of the first layer


def test_several_outgoing_arrays_count_together():
    params = {
        "w1": jnp.ones((2, 3)),
        "a": jnp.array([[1.0], [0.0], [1.0]]),
        "b": jnp.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.2, 0.2, 0.2]]),
        "c": jnp.array([0.0, 0.0, 0.1]),
        "bias": jnp.zeros(()),
    }  # Sums of |w|: 1, 3, 1.7, over five weights each.
    units = plastax.Units(
        "hidden",
        (plastax.Incoming(lambda p: p["w1"], 1),),
        (
            plastax.Outgoing(lambda p: p["a"], 0),
            plastax.Outgoing(lambda p: p["b"], 0),
            plastax.Outgoing(lambda p: p["c"], 0, bias=lambda p: p["bias"]),
        ),
    )
    optimizer = plastax.continual_backprop(
        optax.sgd(0.0),
        [units],
        replacement_rate=2 / 3,
        maturity_threshold=0,
        decay_rate=0.0,
        key=jax.random.key(0),
        unit_init=sevens,
    )
    features = {"hidden": jnp.array([[1.0, 1.0, 2.0], [1.0, 1.0, 0.0]])}
    updates, state = jax.jit(optimizer.update)(params, optimizer.init(params), params, features=features)
    np.testing.assert_allclose(state.layers[0].utility, [0, 0.6, 0], rtol=1e-6)
    after = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(after["a"][:, 0], [0, 0, 0])
    np.testing.assert_array_equal(after["b"], [[0, 0, 0], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(after["bias"], 0.1)


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        (describe(axis=1, bias=None), ValueError, "disagree about the number of units"),
        (describe(axis=2), ValueError, r"outgoing\[0\]: axis 2 is out of range for an array of shape \(5, 2\)"),
        (describe(repeat=3, channels_first=False), ValueError, "does not hold 3 equal repeats"),
        (describe(bias=lambda p: p["b1"]), ValueError, "cannot tell which axis"),
        (describe(where=lambda p: p), ValueError, "must pick one array"),
        (describe(where=lambda p: p["w3"]), KeyError, "w3"),
    ],
)
def test_descriptions_that_do_not_fit(units, error, message):
    optimizer = plastax.continual_backprop(optax.sgd(0.1), [units], replacement_rate=0.1, key=jax.random.key(0))
    with pytest.raises(error, match=message):
        optimizer.init(make_params())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plastax.Units("h", (), describe().outgoing), "at least one incoming and one outgoing"),
        (lambda: plastax.Units("h", describe().incoming, ()), "at least one incoming and one outgoing"),
        (lambda: describe(repeat=0), "`repeat` of an outgoing array must be at least 1, got 0"),
        (lambda: describe(repeat=2), "repeat=2, an outgoing array needs channels_first"),
        (lambda: plastax.Units.dense("h", id, id, output_axis=1), "output_axis must be -1"),
    ],
)
def test_descriptions_that_say_nothing(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("params_dtype", "grads_dtype"), [(jnp.float32, jnp.bfloat16), (jnp.bfloat16, jnp.float32)])
@pytest.mark.parametrize("inner", [lambda: optax.sgd(0.1), lambda: plastax.resettable_adam(0.1)], ids=["sgd", "adam"])
def test_outgoing_weights_are_exactly_zero_in_mixed_precision(params_dtype, grads_dtype, inner):
    params = jax.tree.map(lambda p: p.astype(params_dtype), make_params())
    grads = jax.tree.map(lambda p: jnp.cos(p).astype(grads_dtype), params)
    features = {"hidden": jnp.ones((2, WIDTH), params_dtype).at[:, GONE].set(0)}
    optimizer = plastax.redo(inner(), describe(), interval=1, key=jax.random.key(0), unit_init=sevens)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(grads, optimizer.init(params), params, features=features)
        after = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(np.asarray(after["w2"][GONE], np.float32), 0)
    np.testing.assert_array_equal(np.asarray(after["b1"][GONE], np.float32), 0)
    # The sum of an old weight and the step to the new one is rounded like any other sum.
    resolution = 16 * float(jnp.finfo(params_dtype).eps)
    np.testing.assert_allclose(np.asarray(after["w1"][:, GONE], np.float32), 7, rtol=resolution)
    assert np.abs(np.asarray(after["w2"][STAY], np.float32)).min() > 0
