import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch

from plastax.models import GatedLinear


def make(*arguments, **options):
    def model_and_state(key):
        model = GatedLinear(*arguments, **options, key=key)
        return model, model.init_state(jax.random.fold_in(key, 1))

    return quick_jit(model_and_state)(quick_key(0))


@pytest.fixture(scope="module")
def small():
    return (*make(6, 3, width=20), random_batch((5, 6)))


def _at(model, kernel):
    return eqx.tree_at(lambda m: m.kernel, model, kernel)


def test_is_a_relu_network_at_first_and_not_later(small):
    model, state, x = small

    def relu_network(kernel):
        hidden = np.maximum(np.asarray(x, np.float64) @ np.asarray(kernel, np.float64), 0)
        return hidden, hidden @ np.asarray(state.readout, np.float64) / np.sqrt(20)

    output, features, same = model(x, state)
    hidden, expected = relu_network(model.kernel)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(features["hidden"], hidden, rtol=1e-5, atol=1e-5)
    assert same is state
    moved = _at(model, -model.kernel)
    # Its gates stay: it is the first network with the sign turned, where a ReLU network would open the other gates.
    np.testing.assert_allclose(moved(x, state)[0], -expected, rtol=1e-5, atol=1e-5)
    assert np.abs(moved(x, state)[0] - relu_network(moved.kernel)[1]).max() > 0.1


def test_is_exactly_linear_in_its_parameters(small):
    model, state, x = small
    first, second = random_batch((6, 20), 1), random_batch((6, 20), 2)

    def output(kernel):
        return _at(model, kernel)(x, state)[0]

    run, jacobian = quick_jit(output), quick_jit(jax.jacrev(output))
    np.testing.assert_allclose(
        run(2.0 * first - 3.0 * second), 2.0 * run(first) - 3.0 * run(second), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(run(jnp.zeros((6, 20))), 0)
    here, there = jacobian(first), jacobian(second)
    np.testing.assert_array_equal(here, there)


def test_tangent_kernel_follows_the_papers_formula(small):
    model, state, x = small
    jacobian = quick_jit(jax.jacrev(lambda model: model(x, state)[0]))(model).kernel
    jacobian = np.asarray(jacobian, np.float64).reshape(5 * 3, -1)
    gates = (np.asarray(x) @ np.asarray(state.gates) > 0).astype(np.float64)
    readout = np.asarray(state.readout, np.float64)
    inner = np.asarray(x, np.float64) @ np.asarray(x, np.float64).T
    expected = np.einsum("nm,ho,hp,nh,mh->nomp", inner, readout, readout, gates, gates) / 20
    np.testing.assert_allclose(jacobian @ jacobian.T, expected.reshape(15, 15), rtol=1e-4, atol=1e-5)


def test_wide_tangent_kernel_approaches_the_closed_form():
    width = 40_000
    model, state = make(4, 1, width=width)
    x = random_batch((3, 4))
    jacobian = quick_jit(jax.jacrev(lambda model, state: model(x, state)[0][:, 0]))(model, state).kernel
    jacobian = np.asarray(jacobian, np.float64).reshape(3, -1)
    x = np.asarray(x, np.float64)
    norms = np.linalg.norm(x, axis=1)
    angle = np.arccos(np.clip(x @ x.T / np.outer(norms, norms), -1, 1))
    expected = x @ x.T * (np.pi - angle) / (2 * np.pi)
    # Each entry is a mean of `width` terms |x||x'| w^2 gate gate' with E[w^4] = 3: six standard errors at most.
    np.testing.assert_array_less(
        np.abs(jacobian @ jacobian.T - expected), 6 * np.outer(norms, norms) * np.sqrt(3 / width)
    )


def test_parameters_are_the_first_kernel_alone_and_all_is_standard_normal():
    model, state = make(200, 150, width=300)
    assert [leaf.shape for leaf in jax.tree.leaves(model)] == [(200, 300)]
    np.testing.assert_array_equal(state.gates, model.kernel)
    for kernel in (model.kernel, state.readout):
        assert abs(np.mean(kernel)) < 5 / np.sqrt(kernel.size)
        np.testing.assert_allclose(np.var(kernel), 1, rtol=5 * np.sqrt(2 / kernel.size))


def test_rank_of_the_initial_kernel_can_be_chosen():
    draw = quick_jit(jax.vmap(lambda key: GatedLinear(60, 2, width=80, rank=7, key=key).kernel))
    kernels = np.asarray(draw(jax.random.split(quick_key(5), 20)), np.float64)
    values = np.linalg.svd(kernels, compute_uv=False)
    assert values[:, 6].min() > 1
    assert values[:, 7].max() < 1e-4
    # Entries of one kernel are correlated, so that one kernel would say little about their variance.
    np.testing.assert_allclose(kernels.var(), 1, atol=0.1)


@pytest.mark.parametrize(("rank", "message"), [(0, "`rank` must be a whole number"), (7, r"at most min.* = 6, got 7")])
def test_impossible_ranks_are_refused(rank, message):
    with pytest.raises(ValueError, match=message):
        GatedLinear(6, 2, width=20, rank=rank, key=quick_key(0))


def test_key_and_state_are_asked_for_and_units_cannot_be_reset(small):
    model, _, x = small
    with pytest.raises(ValueError, match=r"model\.init_state\(key\)"):
        model.init_state()
    with pytest.raises(ValueError, match=r"model\.init_state\(key\)"):
        model(x)
    with pytest.raises(ValueError, match="frozen"):
        model.resettable_units()


def test_parameters_and_state_may_be_overwritten_together(small):
    model, _, _ = small
    model = jax.tree.map(jnp.copy, model)
    state = model.init_state(quick_key(1))
    assert state.gates.unsafe_buffer_pointer() != model.kernel.unsafe_buffer_pointer()
