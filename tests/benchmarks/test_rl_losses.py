"""Advantages and losses against straightforward numpy transcriptions in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from rl_support import tiny

from plastax.models import ActorCritic, Gaussian
from plastax_benchmarks.rl import policy
from plastax_benchmarks.rl.normalizer import add_rows, new_normalizer, normalize
from plastax_benchmarks.rl.ppo import RolloutRows, actor_loss, generalized_advantages, ppo_loss


GENERATOR = np.random.default_rng(0)
TIME, ENVS = 30, 4


def numpy_advantages(rewards, values, successors, terminated, truncated, gamma, gae_lambda):
    """By the definition: for each step, the discounted sum of all later errors of its own episode."""
    advantages = np.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        for start in range(len(rewards)):
            factor = 1.0
            for t in range(start, len(rewards)):
                future = 0.0 if terminated[t, env] else successors[t, env]
                advantages[start, env] += factor * (rewards[t, env] + gamma * future - values[t, env])
                if terminated[t, env] or truncated[t, env]:
                    break
                factor *= gamma * gae_lambda
    return advantages


@pytest.mark.parametrize("ends", ["none", "terminated", "truncated", "both"])
def test_advantages(ends):
    rewards, values, successors = GENERATOR.normal(size=(3, TIME, ENVS))
    terminated = (GENERATOR.random((TIME, ENVS)) < 0.15) & (ends in ("terminated", "both"))
    truncated = (GENERATOR.random((TIME, ENVS)) < 0.15) & (ends in ("truncated", "both")) & ~terminated
    assert terminated.any() == (ends in ("terminated", "both"))
    assert truncated.any() == (ends in ("truncated", "both"))
    expected = numpy_advantages(rewards, values, successors, terminated, truncated, 0.9, 0.8)
    arrays = [jnp.asarray(x, jnp.float32) for x in (rewards, values, successors)]
    found = generalized_advantages(*arrays, jnp.asarray(terminated), jnp.asarray(truncated), gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_a_cut_off_episode_has_a_future_and_an_ended_one_has_none():
    one, zero, yes, no = jnp.ones((1, 1)), jnp.zeros((1, 1)), jnp.full((1, 1), True), jnp.full((1, 1), False)
    ended = generalized_advantages(one, zero, 10 * one, yes, no, gamma=0.5, gae_lambda=0.9)
    cut = generalized_advantages(one, zero, 10 * one, no, yes, gamma=0.5, gae_lambda=0.9)
    assert (float(ended[0, 0]), float(cut[0, 0])) == (1.0, 6.0)


def test_the_value_of_a_terminal_state_does_not_count():
    one, yes = jnp.ones((2, 1)), jnp.full((2, 1), True)
    found = generalized_advantages(one, one, jnp.nan * one, yes, ~yes, gamma=0.9, gae_lambda=0.9)
    np.testing.assert_array_equal(found, jnp.zeros((2, 1)))


def gaussian(rows=50, actions=3):
    mean, sample = GENERATOR.normal(size=(2, rows, actions))
    log_std = np.broadcast_to(GENERATOR.normal(size=actions) / 2, mean.shape)
    return mean, log_std, sample


def as_policy(mean, log_std):
    return Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32))


def test_log_probability_and_entropy():
    mean, log_std, sample = gaussian()
    normal = scipy.stats.norm(mean, np.exp(log_std))
    made, drawn = as_policy(mean, log_std), jnp.asarray(sample, jnp.float32)
    np.testing.assert_allclose(policy.log_probability(made, drawn), normal.logpdf(sample).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(made, drawn, "clip"), normal.entropy().sum(-1), rtol=1e-5)


def test_entropy_of_squashed_actions_against_quadrature():
    mean, log_std = np.array([[0.3]]), np.array([[-0.4]])
    noise = GENERATOR.normal(size=(200_000, 1))
    made = as_policy(np.broadcast_to(mean, noise.shape), np.broadcast_to(log_std, noise.shape))
    found = np.mean(policy.entropy(made, jnp.asarray(noise, jnp.float32), "tanh"))
    action = np.linspace(-1, 1, 400_001)[1:-1]
    density = scipy.stats.norm(0.3, np.exp(-0.4)).pdf(np.arctanh(action)) / (1 - action**2)
    positive = density > 0
    expected = -np.trapezoid(np.where(positive, density * np.log(np.where(positive, density, 1)), 0), action)
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_slope_of_tanh_where_it_rounds_to_one():
    # 1 - tanh(20)**2 is 0 in float64 already: there it is 4 exp(-2 x).
    np.testing.assert_allclose(policy.log_slope_of_tanh(jnp.array([0.5, -20.0, 20.0])), [
        np.log(1 - np.tanh(0.5) ** 2), np.log(4) - 40, np.log(4) - 40
    ], rtol=1e-5)  # fmt: skip


def test_what_the_simulator_gets():
    sample = jnp.array([[-3.0, 0.5]])
    np.testing.assert_array_equal(policy.to_action(sample, "unbounded"), sample)
    np.testing.assert_array_equal(policy.to_action(sample, "clip"), [[-1.0, 0.5]])
    np.testing.assert_allclose(policy.to_action(sample, "tanh"), np.tanh(sample), rtol=1e-6)


def numpy_rows(rows=40, observation=3, actions=2):
    """Rows that were made by another network, so that some ratios and values are clipped and some are not."""
    return RolloutRows(
        observations=GENERATOR.normal(size=(rows, observation)),
        samples=GENERATOR.normal(size=(rows, actions)),
        log_probabilities=GENERATOR.normal(-2.8, 0.3, size=rows),
        values=GENERATOR.normal(0, 0.3, size=rows),
        advantages=GENERATOR.normal(size=rows),
        targets=GENERATOR.normal(size=rows),
        noise=GENERATOR.normal(size=(rows, actions)),
    )


def numpy_loss(problem, parameters, rows):
    """PPO's loss, written out for one hidden layer of ReLUs for actor and critic."""
    hidden = np.maximum(rows.observations @ parameters["w1"] + parameters["b1"], 0)
    mean = hidden @ parameters["w2"] + parameters["b2"]
    hidden = np.maximum(rows.observations @ parameters["v1"] + parameters["c1"], 0)
    value = (hidden @ parameters["v2"] + parameters["c2"])[:, 0]
    std = np.exp(parameters["log_std"])
    normal = scipy.stats.norm(mean, std)
    ratio = np.exp(normal.logpdf(rows.samples).sum(1) - rows.log_probabilities)
    advantages = (rows.advantages - rows.advantages.mean()) / (rows.advantages.std() + 1e-8)
    clipped = np.clip(ratio, 1 - problem.clip_eps, 1 + problem.clip_eps)
    assert 0.1 < np.mean(ratio != clipped) < 0.9
    actor = -np.minimum(ratio * advantages, clipped * advantages).mean()
    near = rows.values + np.clip(value - rows.values, -problem.clip_eps, problem.clip_eps)
    assert 0.1 < np.mean(near != value) < 0.98
    error = (value - rows.targets) ** 2
    if problem.clip_values:
        error = np.maximum(error, (near - rows.targets) ** 2)
    bonus = normal.entropy().sum(1)
    if problem.actions == "tanh":
        bonus = bonus + np.log(1 - np.tanh(mean + std * rows.noise) ** 2).sum(1)
    return actor + problem.value_weight * error.mean() - problem.entropy_weight * bonus.mean()


def parameters_of(model):
    arrays = {
        "w1": model.actor.hidden[0].layer.kernel,
        "b1": model.actor.hidden[0].layer.bias,
        "w2": model.actor.head.kernel,
        "b2": model.actor.head.bias,
        "v1": model.critic.hidden[0].layer.kernel,
        "c1": model.critic.hidden[0].layer.bias,
        "v2": model.critic.head.kernel,
        "c2": model.critic.head.bias,
        "log_std": model.log_std,
    }
    return {name: np.asarray(array, np.float64) for name, array in arrays.items()}


@pytest.mark.parametrize(("actions", "clip_values"), [("clip", True), ("tanh", False)])
def test_loss_and_its_gradient(actions, clip_values):
    problem = tiny(entropy_weight=0.3, value_weight=0.7, actions=actions, clip_values=clip_values).problem
    model, rows = ActorCritic(3, 2, 5, key=jax.random.key(1)), numpy_rows()
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), rows)
    (value, (parts, _)), gradient = jax.value_and_grad(lambda m: ppo_loss(problem, m, single), has_aux=True)(model)
    parameters = parameters_of(model)
    np.testing.assert_allclose(value, numpy_loss(problem, parameters, rows), rtol=1e-5)
    total = parts.actor_loss + 0.7 * parts.value_loss - 0.3 * parts.entropy
    np.testing.assert_allclose(value, total, rtol=1e-6)
    for name, slope in parameters_of(gradient).items():
        # Random directions through each array, by central differences in float64.
        direction = GENERATOR.normal(size=slope.shape)

        def along(step, name=name, direction=direction):
            return numpy_loss(problem, parameters | {name: parameters[name] + step * direction}, rows)

        difference = (along(1e-6) - along(-1e-6)) / 2e-6
        np.testing.assert_allclose(np.sum(slope * direction), difference, rtol=2e-3, atol=2e-5, err_msg=name)


def test_no_gain_from_leaving_the_trust_region():
    made = as_policy(np.zeros((2, 1)), np.zeros((2, 1)))
    sample = jnp.zeros((2, 1))
    old = policy.log_probability(made, sample) - jnp.log(jnp.array([3.0, 3.0]))  # Both ratios are 3.
    better = actor_loss(made, sample, old, jnp.array([1.0, 1.0]), 0.2)
    worse = actor_loss(made, sample, old, jnp.array([-1.0, -1.0]), 0.2)
    np.testing.assert_allclose([better, worse], [-1.2, 3.0], rtol=1e-6)


def test_normalizer_is_mean_and_deviation_of_all_rows_so_far():
    rows = GENERATOR.normal(3.0, 2.0, size=(100, 4)).astype(np.float32)
    normalizer = new_normalizer(4)
    np.testing.assert_array_equal(normalize(normalizer, jnp.asarray(rows)), rows)
    for part in np.split(rows, [10, 55]):
        normalizer = add_rows(normalizer, jnp.asarray(part))
    expected = (rows.astype(np.float64) - rows.mean(0)) / rows.astype(np.float64).std(0)
    np.testing.assert_allclose(normalize(normalizer, jnp.asarray(rows)), expected, rtol=1e-4, atol=1e-5)
    constant = add_rows(new_normalizer(1), jnp.ones((5, 1)))
    assert np.isfinite(normalize(constant, jnp.full((1, 1), 2.0))).all()
