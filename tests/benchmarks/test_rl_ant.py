"""Brax's ant: friction matters, costs no compilation, and is each environment's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_benchmarks.rl.ant import Ant, brax_arithmetic


STEPS = 25


@pytest.fixture(scope="module", params=["spring", "positional"])
def slides(request):
    """An ant that is pushed along the floor and lies still otherwise: from frictions to its way, for each at once."""
    ant = Ant(request.param)

    def way(friction):
        state = ant.reset(jax.random.key(0), friction)
        with brax_arithmetic():
            system = ant.simulator.sys
            pushed = jnp.zeros(system.qd_size()).at[0].set(4.0)
            start = state.physics.replace(pipeline_state=ant.simulator.pipeline_init(system.init_q, pushed))
        state = state._replace(physics=start)

        def step(state, _):
            outcome = ant.step(state, jnp.zeros(ant.action_size))
            return outcome.state, outcome.state.physics.pipeline_state.x.pos[0, 0]

        state, positions = jax.lax.scan(step, state, length=STEPS)
        return positions, state.friction

    return ant, jax.jit(jax.vmap(way))


def test_friction_changes_the_physics_and_is_each_environments_own(slides):
    ant, ways = slides
    original = np.array(ant.simulator.sys.geom_friction)
    frictions = jnp.array([0.02, 0.5, 2.0])
    positions, kept = ways(frictions)
    assert np.isfinite(positions).all()
    np.testing.assert_array_equal(kept, frictions)
    # A slippery floor lets it slide on.
    assert positions[0, -1] > positions[1, -1] + 0.1
    assert positions[0, -1] > positions[2, -1] + 0.3
    # Each of three side by side moves as three that are all like it: separate runs, in the same program.
    for index, friction in enumerate(frictions):
        alone, _ = ways(jnp.full(3, friction))
        np.testing.assert_allclose(alone[index], positions[index], rtol=1e-5, atol=1e-5)
    assert ways._cache_size() == 1
    # Nothing traced stays behind in the simulator.
    assert not isinstance(ant.simulator.sys.geom_friction, jax.core.Tracer)
    np.testing.assert_array_equal(ant.simulator.sys.geom_friction, original)


def test_sizes_are_brax_own():
    ant = Ant("spring")
    state = jax.eval_shape(ant.reset, jax.random.key(0), jnp.asarray(1.0))
    assert state.observation.shape == (ant.observation_size,)
    assert ant.action_size == ant.simulator.action_size
