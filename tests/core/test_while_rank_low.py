"""A transformation that is on only while the effective rank is low: which updates it changes, and what it costs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax


INPUTS = jax.random.normal(jax.random.key(0), (12, 6))


def features(params, inputs):
    return {"hidden": inputs @ params}


def numpy_rank(params):
    singular = np.linalg.svd(np.asarray(INPUTS, np.float64) @ np.asarray(params, np.float64), compute_uv=False)
    p = singular / singular.sum()
    return np.exp(-np.sum(p * np.log(np.where(p > 0, p, 1))))


def params_of_rank(rank):
    """Orthonormal columns, and some of zeros."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    return jnp.asarray(basis * (np.arange(6) < rank), jnp.float32)


FULL, LOW = params_of_rank(6), params_of_rank(2)


def states(transform, sequence, interval_inputs=INPUTS):
    """The updates and the states of a sequence of parameters, with gradients of one."""
    state, found = transform.init(sequence[0]), []
    step = jax.jit(transform.update)
    for params in sequence:
        updates, state = step(jnp.ones_like(params), state, params, inputs=interval_inputs)
        found.append((float(updates[0, 0]), state))
    return found


def test_it_is_on_from_the_update_after_a_low_measurement_to_the_one_after_a_high_one():
    transform = plastax.while_rank_low(optax.scale(3.0), features, 0.5, interval=2)
    sequence = [FULL, FULL, LOW, LOW, LOW, FULL, FULL, LOW]  # Measured at the second, fourth, sixth and eighth.
    found = states(transform, sequence)
    assert [update for update, _ in found] == [1, 1, 1, 1, 3, 3, 1, 1]
    assert [bool(state.active) for _, state in found] == [False] * 3 + [True] * 2 + [False] * 2 + [True]
    last = found[-1][1]
    assert int(last.taken) == 2
    assert float(last.reference) == pytest.approx(numpy_rank(FULL), rel=1e-5)
    assert float(last.window.effective_rank) == pytest.approx(numpy_rank(LOW), rel=1e-5)
    assert float(found[0][1].reference) == 0


def test_the_state_of_the_inner_transformation_stands_still_while_it_is_off():
    transform = plastax.while_rank_low(optax.trace(0.9), features, 0.5)
    counted = states(transform, [FULL, FULL, LOW, LOW, LOW])
    # On for the last two updates: the trace has two gradients of one.
    assert float(counted[2][1].inner_state.trace[0, 0]) == 0
    assert counted[-1][0] == pytest.approx(1.9)


def test_it_is_off_at_a_fraction_of_zero_and_on_above_one_and_off_for_features_of_nan():
    for fraction, expected in ((0.0, 1.0), (1.5, 3.0)):
        found = states(plastax.while_rank_low(optax.scale(3.0), features, fraction), [FULL, LOW, FULL])
        assert found[-1][0] == expected
    found = states(plastax.while_rank_low(optax.scale(3.0), features, 0.9), [FULL, LOW, FULL * jnp.nan, FULL])
    assert [update for update, _ in found] == [1, 1, 3, 1]
    # Dead from the start: 0 is not below 0, and the first rank above 0 becomes the reference.
    dead = states(plastax.while_rank_low(optax.scale(3.0), features, 0.9), [0 * FULL, 0 * FULL, FULL, LOW, LOW])
    assert [update for update, _ in dead] == [1, 1, 1, 1, 3]


def test_the_window_holds_several_minibatches():
    example = jax.ShapeDtypeStruct((4, 6), jnp.float32)
    transform = plastax.while_rank_low(
        optax.scale(3.0), features, 1.0, interval=3, window=3, inputs_like=example, layers=["hidden"]
    )
    state, step = transform.init(FULL), jax.jit(transform.update)
    for part in jnp.split(INPUTS, 3):
        _, state = step(FULL, state, FULL, inputs=part)
    assert float(state.reference) == pytest.approx(numpy_rank(FULL), rel=1e-5)  # On all twelve samples.
    restarted = plastax.restart_windows(state)
    assert int(restarted.window.since_restart) == 0
    assert float(restarted.reference) == float(state.reference)


def test_under_vmap_the_inner_transformation_runs_only_when_some_entry_needs_it():
    runs = []

    def inner_update(updates, state, params=None):
        jax.debug.callback(lambda: runs.append(1))
        return jax.tree.map(lambda update: 3 * update, updates), state

    inner = optax.GradientTransformation(lambda params: optax.EmptyState(), inner_update)
    transform = plastax.while_rank_low(inner, features, 0.5)
    together = jax.jit(jax.vmap(lambda state, params: transform.update(params + 1, state, params, inputs=INPUTS)))
    state = jax.vmap(transform.init)(jnp.stack([FULL, FULL]))
    for sequence in ([FULL, FULL], [FULL, FULL]):
        updates, state = together(state, jnp.stack(sequence))
    jax.effects_barrier()
    assert not runs
    updates, state = together(state, jnp.stack([FULL, LOW]))
    updates, state = together(state, jnp.stack([FULL, LOW]))
    jax.effects_barrier()
    assert runs
    np.testing.assert_allclose(updates, jnp.stack([FULL + 1, 3 * (LOW + 1)]), rtol=1e-6)
    assert state.active.tolist() == [False, True]
