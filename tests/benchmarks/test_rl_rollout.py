"""Episodes, restarts, time limits, broken states, and the schedule of frictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_support import Sledge, tiny

from plastax_benchmarks.rl.friction import friction_after, friction_at
from plastax_benchmarks.rl.rollout import advance, begin


def walk(environment, actions, *, limit=1000, friction=0.0):
    """One episode after another, for given first actions: what each step gave, and the observations before it."""
    episode = begin(environment, jax.random.key(0), jnp.asarray(friction))
    step = jax.jit(lambda e, a: advance(environment, limit, e, jnp.stack([a, a]), jnp.asarray(friction)))
    seen, outcomes = [], []
    for action in actions:
        seen.append(np.asarray(episode.state.observation))
        episode, outcome = step(episode, jnp.asarray(action, jnp.float32))
        outcomes.append(jax.tree.map(np.asarray, outcome))
    return np.stack(seen), jax.tree.map(lambda *x: np.stack(x), *outcomes)


def test_time_limits_are_truncations_and_a_new_episode_follows():
    seen, found = walk(Sledge(), np.zeros(12), limit=5)
    np.testing.assert_array_equal(np.flatnonzero(found.truncated), [4, 9])
    assert not found.terminated.any()
    np.testing.assert_array_equal(found.length[found.truncated], 5)
    np.testing.assert_allclose(found.total[4], found.reward[:5].sum(), rtol=1e-6)
    np.testing.assert_allclose(found.total[9], found.reward[5:10].sum(), rtol=1e-6)
    # Within an episode the successor is what is seen next; after a cut it is the last state of the old episode.
    goes_on = ~found.truncated[:-1]
    np.testing.assert_array_equal(found.successor[:-1][goes_on], seen[1:][goes_on])
    assert np.abs(found.successor[4] - seen[5]).max() > 1e-3
    # Every start is a new one.
    assert len({tuple(seen[t]) for t in (0, 5, 10)}) == 3


def test_a_natural_end_is_terminal():
    _, found = walk(Sledge(), np.full(40, 5.0), limit=1000)
    first = np.flatnonzero(found.terminated)[0]
    assert abs(found.successor[first, 0]) > 3.0
    assert not found.truncated.any()
    assert not found.broken.any()
    assert found.length[first] == first + 1


def test_an_end_at_the_time_limit_is_terminal_only():
    _, free = walk(Sledge(), np.full(40, 5.0))
    first = int(np.flatnonzero(free.terminated)[0])
    _, found = walk(Sledge(), np.full(40, 5.0), limit=first + 1)
    assert found.terminated[first]
    assert not found.truncated[first]


def test_states_that_are_not_finite_end_the_episode():
    seen, found = walk(Sledge(breaks_beyond=1.0), np.full(40, 5.0))
    assert found.broken.sum() >= 2
    np.testing.assert_array_equal(found.broken, found.terminated)
    for values in (seen, *jax.tree.leaves(found)):
        assert np.isfinite(values).all()
    np.testing.assert_array_equal(found.successor[found.broken], 0.0)
    np.testing.assert_array_equal(found.reward[found.broken], 0.0)


def test_episodes_side_by_side_are_what_they_are_alone():
    """Starts are drawn in a branch that all environments share, whenever one of them ends an episode."""
    actions = jnp.stack([jnp.full(30, push) for push in (0.0, 2.0, 5.0)], axis=1)
    keys = jax.random.split(jax.random.key(1), 3)

    def walks(keys, actions):
        episodes = jax.vmap(lambda key: begin(Sledge(), key, jnp.asarray(0.1)))(keys)

        def step(episodes, action):
            return jax.vmap(lambda e, a: advance(Sledge(), 25, e, jnp.stack([a, a]), jnp.asarray(0.1)))(
                episodes, action
            )

        return jax.lax.scan(step, episodes, actions)

    ends, together = walks(keys, actions)
    done = together.terminated | together.truncated
    np.testing.assert_array_equal(done.sum(0) > 0, True)
    assert len({tuple(np.flatnonzero(each)) for each in done.T}) == 3  # At different times.
    for place in range(3):
        end, alone = walks(keys[place][None], actions[:, place][:, None])
        for one, all_of_them in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(one[:, 0], all_of_them[:, place], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(end.state.physics[0], ends.state.physics[place], rtol=1e-5, atol=1e-6)


def test_friction_is_that_of_the_moment():
    episode = begin(Sledge(), jax.random.key(0), jnp.asarray(0.0))
    episode = episode._replace(state=episode.state._replace(physics=jnp.array([0.0, 1.0])))
    velocities = [
        advance(Sledge(), 9, episode, jnp.zeros(2), jnp.asarray(friction))[0].state.physics[1]
        for friction in (0.0, 1.0, 2.0)
    ]
    np.testing.assert_allclose(velocities, [1.0, 0.8, 0.6], rtol=1e-6)


def test_schedule_is_a_pure_log_uniform_function_of_seed_and_change():
    frictions = np.asarray(friction_after(0, jnp.arange(4000)))
    assert frictions.min() >= 0.02
    assert frictions.max() <= 2.0
    # Log-uniform: quantiles of the logarithm are evenly spaced.
    share = (np.log(frictions) - np.log(0.02)) / (np.log(2.0) - np.log(0.02))
    np.testing.assert_allclose(np.quantile(share, [0.1, 0.25, 0.5, 0.75, 0.9]), [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.03)
    alone = [float(friction_after(0, change)) for change in (0, 7, 3999)]
    np.testing.assert_array_equal(alone, frictions[[0, 7, 3999]])
    assert float(jax.jit(lambda n: friction_after(0, n))(7)) == pytest.approx(alone[1])
    other = np.asarray(friction_after(1, jnp.arange(4000)))
    assert (other != frictions).mean() > 0.99
    assert abs(np.corrcoef(np.log(frictions), np.log(other))[0, 1]) < 0.1


def test_friction_changes_at_its_step_exactly():
    steps = jnp.array([0, 99, 100, 199, 200])
    problem = tiny(change_every=100).problem
    changing = friction_at(problem, 3, steps)
    np.testing.assert_array_equal(changing, friction_after(3, jnp.array([0, 0, 1, 1, 2])))
    np.testing.assert_array_equal(friction_at(tiny(friction=0.7).problem, 3, steps), np.full(5, 0.7, np.float32))
