"""The branch stays a branch under vmap: seen in the jaxpr, and in what each entry gets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import primitives as walk

import plastax


def work(x):
    return jnp.sin(x) @ x.T @ x


def with_run_if(predicate, x):
    return plastax.run_if(predicate, work, lambda x: x, x)


def with_cond(predicate, x):
    return jax.lax.cond(predicate, work, lambda x: x, x)


def primitives(function, *args):
    return [equation.primitive.name for equation in jax.make_jaxpr(function)(*args).eqns]


XS = jax.random.normal(jax.random.key(0), (4, 3, 5))
PREDICATES = jnp.array([True, False, False, True])


def test_plain_cond_becomes_a_select_under_vmap_and_run_if_does_not():
    assert "cond" not in primitives(jax.vmap(with_cond), PREDICATES, XS)
    assert "dot_general" in primitives(jax.vmap(with_cond), PREDICATES, XS)

    top_level = primitives(jax.vmap(with_run_if), PREDICATES, XS)
    assert "cond" in top_level
    assert "dot_general" not in top_level, "the work must stand inside of the branch"


def test_the_predicate_of_the_branch_is_a_scalar_even_under_nested_vmap():
    nested = jax.make_jaxpr(jax.vmap(jax.vmap(with_run_if)))(PREDICATES.reshape(2, 2), XS.reshape(2, 2, 3, 5))
    assert [shape for name, _, shape in walk(nested.jaxpr) if name == "cond"] == [()]


def expected():
    return np.stack([work(x) if predicate else x for predicate, x in zip(PREDICATES, XS, strict=True)])


COMPOSITIONS = {
    "vmap": jax.vmap(with_run_if),
    "jit of vmap": jax.jit(jax.vmap(with_run_if)),
    "vmap of jit": jax.vmap(jax.jit(with_run_if)),
    "nested vmap": lambda p, x: jax.vmap(jax.vmap(with_run_if))(p.reshape(2, 2), x.reshape(2, 2, 3, 5)).reshape(
        4, 3, 5
    ),
    "loop": lambda p, x: jnp.stack([with_run_if(p[i], x[i]) for i in range(4)]),
    "scan": lambda p, x: jax.lax.scan(lambda c, px: (c, with_run_if(*px)), 0, (p, x))[1],
    "vmap of scan": lambda p, x: jax.vmap(
        lambda p, x: jax.lax.scan(lambda c, _: (c, with_run_if(p, x)), 0, None, length=1)[1][0]
    )(p, x),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_each_entry_gets_its_own_branch(name):
    np.testing.assert_allclose(COMPOSITIONS[name](PREDICATES, XS), expected(), rtol=1e-5, atol=1e-6)


def test_untaken_branches_run_nothing():
    calls = []

    def noisy(x):
        jax.debug.callback(lambda: calls.append(1))
        return 2 * x

    quiet = jax.jit(jax.vmap(lambda p, x: plastax.run_if(p, noisy, lambda x: x, x)))
    quiet(jnp.zeros(4, bool), jnp.arange(4.0)).block_until_ready()
    jax.effects_barrier()
    assert not calls
    quiet(PREDICATES, jnp.arange(4.0)).block_until_ready()
    jax.effects_barrier()
    assert calls


def test_gradient_goes_through_the_branch_that_was_taken():
    def loss(x):
        return jnp.sum(jax.vmap(with_run_if)(PREDICATES, x) ** 2)

    def reference(x):
        return sum(jnp.sum((work(x[i]) if PREDICATES[i] else x[i]) ** 2) for i in range(4))

    np.testing.assert_allclose(jax.grad(loss)(XS), jax.grad(reference)(XS), rtol=1e-4, atol=1e-5)


def test_every_counts_from_one():
    fired = [
        bool(plastax.every(3, jnp.asarray(count), lambda: jnp.array(True), lambda: jnp.array(False)))
        for count in range(1, 8)
    ]
    assert fired == [False, False, True, False, False, True, False]


def test_every_step_needs_no_branch():
    assert "cond" not in primitives(lambda n: plastax.every(1, n, lambda: n, lambda: n), jnp.asarray(1))
