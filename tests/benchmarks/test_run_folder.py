"""Run folders: what goes in comes out, bit by bit, and what does not belong is refused."""

import dataclasses
import json
import os
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_benchmarks.runs import RunError, open_run, read_stream


CONFIG = {"problem": "permuted", "method": "bp", "num_tasks": 3, "seeds": 2, "model": {"width": 10, "depth": 3}}


class State(NamedTuple):
    count: jax.Array
    keys: jax.Array
    nothing: None
    empty: tuple


def a_tree():
    special = np.array([np.nan, -np.nan, np.inf, -0.0, 1e-45, 3.4e38], np.float32)
    return {
        "float32": jnp.asarray(special),
        "bfloat16": jnp.arange(7, dtype=jnp.bfloat16) / jnp.bfloat16(3),
        "numbers": [jnp.arange(4, dtype=jnp.int8), jnp.uint32(2**32 - 1), jnp.array([[True], [False]])],
        "state": State(jnp.int32(5), jax.random.split(jax.random.key(3), 4), None, ()),
        "other_key": jax.random.key(1, impl="rbg"),
        "old_key": jax.random.PRNGKey(7),
        "layer": eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0)),
        "no_rows": (jnp.zeros((0, 3), jnp.bfloat16), jax.random.split(jax.random.key(0), 0)),
        "host": (np.asfortranarray(np.random.default_rng(0).normal(size=(3, 2))), np.float64(0.1)),
        "python": (True, 7, 0.1),
        "weak": (jnp.asarray(0.1), jnp.broadcast_to(jnp.asarray(3), (2,))),
    }


def bits(leaf):
    if not eqx.is_array_like(leaf):
        return leaf
    if eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(leaf.dtype), np.asarray(jax.random.key_data(leaf)).tobytes(), leaf.shape
    array = np.asarray(leaf)
    return type(leaf), getattr(leaf, "weak_type", None), str(array.dtype), array.shape, array.tobytes()


def assert_same_bits(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert [bits(leaf) for leaf in jax.tree.leaves(one)] == [bits(leaf) for leaf in jax.tree.leaves(other)]


@pytest.mark.parametrize("abstract", [False, True])
def test_a_tree_comes_back_to_the_last_bit(tmp_path, abstract):
    tree = a_tree()
    if abstract:  # Arrays on the host and Python's numbers have no abstract form that says where they live.
        del tree["host"], tree["python"]
    with open_run(tmp_path / "run", CONFIG) as run:
        assert run.restore(tree) is None
        run.save(4, tree)
    if abstract:
        target = eqx.filter_eval_shape(lambda: tree)
    else:
        target = jax.tree.map(lambda x: jnp.zeros_like(x) if isinstance(x, jax.Array) else x, tree)
        target["weak"], target["python"] = tree["weak"], (False, 0, 0.0)
    with open_run(tmp_path / "run", CONFIG) as run:
        found = run.restore(target)
    assert found is not None
    assert found[0] == 4
    assert_same_bits(found[1], tree)
    assert all(
        leaf.devices() == {jax.devices()[0]} for leaf in jax.tree.leaves(found[1]) if isinstance(leaf, jax.Array)
    )


@pytest.mark.parametrize("tree", [{}, None, (), {"nothing": jnp.zeros((0,))}])
def test_a_tree_without_content_is_a_checkpoint_too(tmp_path, tree):
    with open_run(tmp_path, CONFIG) as run:
        run.save(1, tree)
    with open_run(tmp_path, CONFIG) as run:
        found = run.restore(tree)
    assert found is not None
    assert found[0] == 1
    assert_same_bits(found[1], tree)


def test_streams_go_back_to_the_checkpoint(tmp_path):
    rows = [
        {"task": 0, "seed": seed, "loss": np.float32(0.5), "layers": {"b": np.int64(1), "a": None}} for seed in (0, 1)
    ]
    with open_run(tmp_path, CONFIG) as run:
        run.append("metrics", rows)
        run.save(1, jnp.float32(1))
        at_checkpoint = (tmp_path / "metrics.jsonl").read_bytes()
        run.append("metrics", rows)
        run.append("timing", [{"seconds": 1.5}])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"task": 2, "se')
    assert [row["seed"] for row in read_stream(tmp_path / "metrics.jsonl")] == [0, 1, 0, 1]
    with open_run(tmp_path, CONFIG) as run:
        with pytest.raises(ValueError, match="call restore"):
            run.append("metrics", rows)
        with pytest.raises(ValueError, match="call restore"):
            run.save(2, jnp.float32(1))
        assert run.restore(jnp.float32(0)) == (1, jnp.float32(1))
        assert (tmp_path / "metrics.jsonl").read_bytes() == at_checkpoint
        assert (tmp_path / "timing.jsonl").read_bytes() == b""
        run.append("metrics", rows[:1])
    line = b'{"task": 0, "seed": 0, "loss": 0.5, "layers": {"b": 1, "a": null}}\n'
    assert at_checkpoint.startswith(line)
    assert (tmp_path / "metrics.jsonl").read_bytes() == at_checkpoint + line


def test_without_a_checkpoint_the_run_starts_over(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        run.append("metrics", [{"task": 0}])
    for number in (1, 2):
        logged: list[str] = []
        with open_run(tmp_path, CONFIG, log=logged.append) as run:
            assert run.restore({"a": jnp.zeros(2)}) is None
            assert not (tmp_path / "metrics.jsonl").exists()
            run.append("metrics", [{"task": 0}, {"task": number}])
        assert f"the run starts over, old lines are now in metrics.jsonl.{number}" in logged[0]
    assert read_stream(tmp_path / "metrics.jsonl") == [{"task": 0}, {"task": 2}]
    assert read_stream(tmp_path / "metrics.jsonl.1") == [{"task": 0}]
    assert read_stream(tmp_path / "metrics.jsonl.2") == [{"task": 0}, {"task": 1}]


def test_lost_lines_are_noticed(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        run.append("timing", [{"task": 0}])
        run.append("metrics", [{"task": 0}])
        run.save(1, jnp.zeros(2))
        run.append("timing", [{"task": 1}])
    before = (tmp_path / "timing.jsonl").read_bytes()
    os.truncate(tmp_path / "metrics.jsonl", 5)
    with (
        open_run(tmp_path, CONFIG) as run,
        pytest.raises(RunError, match=r"metrics.jsonl has 5 bytes, but had 12 before"),
    ):
        run.restore(jnp.zeros(2))
    assert (tmp_path / "timing.jsonl").read_bytes() == before


@pytest.mark.parametrize("bad", [float("nan"), np.float32("inf"), {"dense1": float("nan")}, object()])
def test_a_row_that_json_cannot_hold_is_named(tmp_path, bad):
    with open_run(tmp_path, CONFIG) as run:
        run.append("metrics", [{"task": 6, "seed": 1}])
        with pytest.raises(ValueError, match=r"metrics \(task 7, seed 2\)") as raised:
            run.append("metrics", [{"task": 7, "seed": 1}, {"task": 7, "seed": 2, "loss": bad}])
        assert not isinstance(raised.value, RunError)
    assert read_stream(tmp_path / "metrics.jsonl") == [{"task": 6, "seed": 1}]


def test_a_broken_line_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"task": 0}\n{"task": 1}')
    assert read_stream(path) == [{"task": 0}]  # The end of line belongs to the line.
    path.write_text("")
    assert read_stream(path) == []
    for broken in ('{"ta\n', "3\n", "\n"):
        path.write_text('{"task": 0}\n' + broken + '{"task": 2}\n')
        with pytest.raises(RunError, match=r"metrics.jsonl, line 2 "):
            read_stream(path)


@dataclasses.dataclass(frozen=True)
class Model:
    width: int
    sizes: tuple[int, ...]


def test_other_settings_are_refused_with_their_names(tmp_path):
    config = {"out": tmp_path, "model": Model(5, (1, 2)), "rate": np.float32(0.5), "num_tasks": 3}
    with open_run(tmp_path, config) as run:
        run.append("metrics", [{"task": 0}])
    as_json = {"out": str(tmp_path), "model": {"width": 5, "sizes": [1, 2]}, "rate": 0.5, "num_tasks": 3}
    assert json.loads((tmp_path / "config.json").read_text()) == as_json
    with open_run(tmp_path, as_json):
        pass
    with pytest.raises(RunError) as raised:
        open_run(tmp_path, {**config, "model": Model(6, (1, 3)), "num_tasks": 4, "seed": 0})
    lines = str(raised.value).splitlines()
    assert str(tmp_path) in lines[0]
    assert lines[1:-1] == [
        "  model.width: 5 in the folder, 6 now",
        "  model.sizes: [1, 2] in the folder, [1, 3] now",
        "  seed: '(missing)' in the folder, 0 now",
    ]
    assert "--out" in lines[-1]
    assert json.loads((tmp_path / "config.json").read_text()) == as_json
    with open_run(tmp_path, {**config, "num_tasks": 4}) as run:  # The refused attempt has given the lock back.
        assert run.restore(()) is None
        # Not before the run goes on: it may turn out that there is nothing left to do.
        assert json.loads((tmp_path / "config.json").read_text())["num_tasks"] == 3
        run.append("metrics", [{"task": 1}])
        assert json.loads((tmp_path / "config.json").read_text())["num_tasks"] == 4
    with open_run(tmp_path, {**config, "model": Model(6, (1, 2))}, may_change=("num_tasks", "model.width")):
        pass


def test_a_folder_in_which_nothing_was_saved_is_taken_over(tmp_path):
    for stream in ("metrics.jsonl", "timing.jsonl"):
        other = {**CONFIG, "method": stream}
        with open_run(tmp_path, {**CONFIG, "method": "wrong"}) as run:
            pass
        (tmp_path / "metrics.jsonl").touch()
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        logged: list[str] = []
        environment = json.loads((tmp_path / "environment.json").read_text())
        (tmp_path / "environment.json").write_text(json.dumps({**environment, "jax": "0.0.1"}))
        with open_run(tmp_path, other, log=logged.append):
            assert json.loads((tmp_path / "config.json").read_text()) == other
            assert json.loads((tmp_path / "environment.json").read_text()) == environment
            with pytest.raises(RunError, match="in use by"):  # It was taken over under the lock.
                open_run(tmp_path, CONFIG)
        assert logged == []
    saves = {
        "metrics": lambda run: run.append("metrics", [{"task": 0}]),
        "checkpoint": lambda run: run.save(0, ()),
        "file": lambda run: run.write("reports/task.json", "{}"),
    }
    for name, save in saves.items():
        with open_run(tmp_path / name, CONFIG) as run:
            save(run)
        with pytest.raises(RunError, match="belongs to a run with other settings"):
            open_run(tmp_path / name, {**CONFIG, "method": "l2"})


def test_settings_that_are_no_json_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"settings of .*nan"):
        open_run(tmp_path / "run", {"rate": float("nan")})
    with pytest.raises(ValueError, match="of type set"):
        open_run(tmp_path / "run", {"rates": {1, 2}})


def test_folders_that_are_no_runs_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match=r"contains something else \(thesis.tex\)"):
        open_run(tmp_path, CONFIG)
    with pytest.raises(RunError, match="is a file"):
        open_run(tmp_path / "thesis.tex", CONFIG)
    with pytest.raises(RunError, match="is a file, or is inside a file"):
        open_run(tmp_path / "thesis.tex" / "run", CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", '{"num_tasks": ', "[1]", "\x00\x00"])
def test_a_broken_config_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=r"config.json cannot be read .*--out"):
        open_run(tmp_path, CONFIG)
    assert (tmp_path / "config.json").read_text() == content


def test_another_environment_is_told_once_and_kept(tmp_path):
    logged: list[str] = []
    with open_run(tmp_path, CONFIG, log=logged.append) as run:
        run.append("metrics", [{"task": 0}])
    path = tmp_path / "environment.json"
    first = json.loads(path.read_text())
    assert first["jax"] == jax.__version__
    assert first["numpy"] == np.__version__
    assert first["device_count"] == jax.device_count()
    assert logged == []
    path.write_text(json.dumps({**first, "jaxlib": "0.0.1"}))
    for _ in range(2):
        with open_run(tmp_path, CONFIG, log=logged.append):
            pass
    assert len(logged) == 1
    assert "jaxlib 0.0.1 -> " in logged[0]
    assert "last bits" in logged[0]
    assert json.loads(path.read_text()) == {**first, "earlier": [{**first, "jaxlib": "0.0.1"}]}


def test_whole_files(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        run.write("reports/task-1.json", "{}")
        run.write("reports/task-1.json", b'{"a": 1}')
        for name in ("../a", "/a", "", "config.json", "metrics.jsonl", "checkpoints/3", "lock"):
            with pytest.raises(ValueError, match="inside the folder"):
                run.write(name, "")
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["task-1.json"]
    assert (tmp_path / "reports" / "task-1.json").read_bytes() == b'{"a": 1}'


def test_misuse_is_named(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        with pytest.raises(ValueError, match=r"unknown stream 'metric' .* metrics, timing, diagnostics"):
            run.append("metric", [{}])
        with pytest.raises(ValueError, match="step must not be negative, got -1"):
            run.save(-1, ())
        with pytest.raises(ValueError, match="does not fit"):
            run.save(0, 2**70)
    with pytest.raises(ValueError, match="is closed"):
        run.append("metrics", [{}])
    with pytest.raises(ValueError, match="keep must be at least 1, got 0"):
        open_run(tmp_path, CONFIG, keep=0)
    with open_run(tmp_path, CONFIG):
        pass


def test_the_last_checkpoints_are_kept(tmp_path):
    with open_run(tmp_path, CONFIG, keep=2) as run:
        for step in (0, 5, 10, 10):
            run.save(step, {"a": jnp.full(3, step)})
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["10", "10.1"]
        run.save(11, {"a": jnp.full(3, 11)})
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["10.1", "11"]


def test_another_shape_is_refused_and_nothing_is_touched(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        run.append("metrics", [{"task": 0}])
        run.save(1, {"a": jnp.zeros((2, 3)), "b": jnp.zeros(1)})
        run.append("metrics", [{"task": 1}])
    wrong = {
        r"\['a'\] float32\[2, 3\] where \['a'\] float32\[3, 2\]": {"a": jnp.zeros((3, 2)), "b": jnp.zeros(1)},
        r"float32\[1\] where \['b'\] int32\[1\]": {"a": jnp.zeros((2, 3)), "b": jnp.zeros(1, int)},
        r"\['b'\] float32\[1\] where \['c'\]": {"a": jnp.zeros((2, 3)), "c": jnp.zeros(1)},
        "2 arrays where 1 are expected": {"a": jnp.zeros((2, 3))},
    }
    for message, target in wrong.items():
        with open_run(tmp_path, CONFIG) as run, pytest.raises(RunError, match=message):
            run.restore(target)
    assert len(read_stream(tmp_path / "metrics.jsonl")) == 2
    assert [path.name for path in Path(tmp_path, "checkpoints").iterdir()] == ["1"]
