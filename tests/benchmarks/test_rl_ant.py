"""Brax's ant: friction matters, costs no compilation, and is each environment's own."""

import base64
import json
import re
import zlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_support import QUIET

from plastax_benchmarks.config import configure
from plastax_benchmarks.rl.ant import Ant, brax_arithmetic, quiet
from plastax_benchmarks.rl.play import play, read_config
from plastax_benchmarks.rl.programs import AntPrograms
from plastax_benchmarks.rl.training import train
from plastax_benchmarks.runs import RunError, read_stream


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


def test_joint_angles_after_the_last_frame_are_those_of_brax():
    """Compared over three frames instead of ten, which compile as fast and round less."""
    with quiet(), brax_arithmetic():
        from brax.envs.ant import Ant as BraxAnt

        from plastax_benchmarks.rl.simulator import LeanAnt

        brax, lean = (kind(backend="spring", n_frames=3) for kind in (BraxAnt, LeanAnt))
        start = jax.jit(brax.reset)(jax.random.key(3)).pipeline_state
        action = jnp.linspace(-1.0, 1.0, brax.action_size)
        expected = jax.jit(brax.pipeline_step)(start, action)
        found = jax.jit(lean.pipeline_step)(start, action)
    assert np.abs(expected.q - start.q).max() > 1e-3
    for name, wanted in vars(expected).items():
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), getattr(found, name), wanted)


@pytest.mark.parametrize("backend", ["spring", "positional"])
def test_only_actuators_use_joint_angles(backend, monkeypatch):
    with quiet(), brax_arithmetic():
        from plastax_benchmarks.rl.simulator import LeanAnt

        ant = LeanAnt(backend=backend)
        state = jax.eval_shape(ant.reset, jax.random.key(0)).pipeline_state.replace(q=None, qd=None)
        step = partial(ant._pipeline.step, ant.sys)
        action = jnp.zeros(ant.action_size)
        with pytest.raises(TypeError):  # The actuators of brax do, at least in their code.
            jax.eval_shape(step, state, action)
        monkeypatch.setattr("brax.actuator.to_tau", lambda system, *_: jnp.zeros(system.qd_size()))
        assert jax.eval_shape(step, state, action).q.shape == ant.sys.init_q.shape


def test_actuators_that_depend_on_joint_angles_are_refused():
    with quiet(), brax_arithmetic():
        from plastax_benchmarks.rl.simulator import LeanAnt

        ant = LeanAnt(backend="spring")
        servo = ant.sys.actuator.replace(bias_q=-jnp.ones(ant.action_size))
        with pytest.raises(ValueError, match="depend on joint angles"):
            LeanAnt.check(ant.sys.replace(actuator=servo))


def test_sizes_are_brax_own():
    ant = Ant("spring")
    state = jax.eval_shape(ant.reset, jax.random.key(0), jnp.asarray(1.0))
    assert state.observation.shape == (ant.observation_size,)
    assert ant.action_size == ant.simulator.action_size


def test_an_ant_is_trained_and_played(tmp_path, capsys):
    sizes = {"num_envs": 2, "num_steps": 4, "update_epochs": 1, "num_minibatches": 2, "log_every": 1, "seeds": 1}
    length = {"total_steps": 16, "change_every": 8}
    config = configure("slippery-ant", "laptop", "bp", **sizes, **length, width=8, out=tmp_path / "run")
    programs = AntPrograms(config, Ant("spring"))
    train(config, programs, console=QUIET)
    # Two windows at two frictions, by one program.
    first, second = read_stream(tmp_path / "run" / "metrics.jsonl")
    assert first["friction"] != second["friction"]
    assert programs._window._cache_size() == 1

    page = play(tmp_path / "run", steps=3).read_text()
    assert "3 steps at friction" in capsys.readouterr().out
    content = zlib.decompress(base64.b64decode(re.search(r'var system = "([^"]+)"', page)[1]))
    episode = json.loads(content)
    assert len(episode["states"]["x"]) == 3
    assert episode["opt"]["timestep"] == pytest.approx(0.05)


def test_only_runs_of_ants_can_be_played(tmp_path):
    with pytest.raises(RunError, match=r"it has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"problem": "permuted-mnist"}')
    with pytest.raises(RunError, match="a run of 'permuted-mnist'"):
        read_config(tmp_path)
