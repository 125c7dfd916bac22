"""Effective rank of sequences, of some rows, in a sketch, for some parameters, with memory that rows do not add to."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax
from plastax._effective_rank.rows import Rows, choose, choose_rows
from plastax_benchmarks.bench._numpy_rank import numpy_effective_rank
from plastax_diagnostics._programs.walk import equations


KEY = jax.random.key(0)
BATCH, TIME, WIDTH = 6, 8, 5
SEQUENCES = jax.nn.relu(jax.random.normal(KEY, (BATCH, TIME, WIDTH)))
FLAT = np.asarray(SEQUENCES, np.float64).reshape(-1, WIDTH)
PARAMS = {
    "up": jax.random.normal(KEY, (4, WIDTH)),
    "out": {"kernel": jax.random.normal(jax.random.key(2), (WIDTH, 3)), "bias": jnp.zeros(3)},
}
TOKENS = jax.random.normal(jax.random.key(1), (BATCH, TIME, 4))


def features(params, tokens):
    hidden = jax.nn.relu(tokens @ params["up"])
    return {"block1.mlp": hidden, "block1.out": hidden @ params["out"]["kernel"] + params["out"]["bias"]}


def test_each_position_of_a_sequence_is_a_row():
    truth, gradient = numpy_effective_rank(FLAT)
    value, found = jax.value_and_grad(plastax.effective_rank_loss)(SEQUENCES)
    np.testing.assert_allclose(value, -truth, rtol=1e-6)
    np.testing.assert_allclose(found.reshape(-1, WIDTH), -gradient, atol=1e-6)
    # Leading axes of `effective_rank` itself are a batch of matrices.
    assert plastax.effective_rank(SEQUENCES).shape == (BATCH,)


def test_masks_are_over_samples_or_over_positions():
    samples = jnp.arange(BATCH) < 4
    positions = jnp.arange(TIME) < jnp.array([8, 3, 5, 1, 0, 0])[:, None]
    for mask, kept in ((samples, np.repeat(samples, TIME)), (positions, np.asarray(positions).reshape(-1))):
        truth, _ = numpy_effective_rank(FLAT[kept])
        np.testing.assert_allclose(plastax.effective_rank_loss(SEQUENCES, mask=mask), -truth, rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"shape \(6,\), or one for each of their rows, shape \(6, 8\), got shape \(3,\)"
    ):
        plastax.effective_rank_loss(SEQUENCES, mask=jnp.ones(3, bool))
    with pytest.raises(ValueError, match=r"have shape \(2, 3, 3, 4\), but effective rank needs \[samples, width\]"):
        plastax.effective_rank_loss(jnp.ones((2, 3, 3, 4)))


@pytest.mark.parametrize("name", ["all", "most", "some"])
def test_rows_are_chosen_once_and_with_equal_probability(name):
    total, chosen, keys = 23, 7, 3000
    mask = {"all": None, "most": jnp.arange(total) % 7 != 2, "some": jnp.arange(total) % 5 == 1}[name]
    index, counts = jax.jit(jax.vmap(lambda key: choose(total, chosen, key, mask)))(jax.random.split(KEY, keys))
    index, allowed = np.asarray(index), np.arange(total) if mask is None else np.flatnonzero(mask)
    kept = np.ones(index.shape, bool) if counts is None else np.asarray(counts)
    assert (kept.sum(axis=1) == min(chosen, len(allowed))).all()
    for row, keep in zip(index[:200], kept, strict=False):
        assert len(set(row[keep])) == keep.sum()
    times = np.bincount(index[kept], minlength=total)
    assert not np.delete(times, allowed).any()
    share = min(chosen / len(allowed), 1)
    # Six standard deviations of a count.
    np.testing.assert_allclose(times[allowed], keys * share, atol=6 * np.sqrt(keys * share * (1 - share)) + 1e-9)


def test_rows_come_from_all_sequences():
    rows, _ = choose_rows(Rows(jnp.repeat(jnp.arange(16.0), 32)[:, None], None), 16, KEY)
    # One from each sixteenth: with a shift, no sequence is more than one row away from its share.
    assert np.bincount(np.asarray(rows[:, 0], int), minlength=16).max() <= 2


def test_nothing_that_counts_gives_zero():
    nothing = jnp.zeros(BATCH, bool)
    value, gradient = jax.value_and_grad(lambda f: plastax.effective_rank_loss(f, rows=4, key=KEY, mask=nothing))(
        SEQUENCES
    )
    assert value == 0
    assert not gradient.any()


def test_the_loss_of_some_rows_is_that_of_these_rows_alone():
    chosen = choose_rows(Rows(SEQUENCES.reshape(-1, WIDTH), None), 12, KEY).features
    truth, _ = numpy_effective_rank(np.asarray(chosen, np.float64))
    value, gradient = jax.value_and_grad(lambda f: plastax.effective_rank_loss(f, rows=12, key=KEY))(SEQUENCES)
    np.testing.assert_allclose(value, -truth, rtol=1e-6)
    assert np.count_nonzero(np.abs(gradient).sum(axis=-1)) <= 12
    # With as many rows as there are, or more, it is exact.
    exact = plastax.effective_rank_loss(SEQUENCES)
    assert plastax.effective_rank_loss(SEQUENCES, rows=BATCH * TIME, key=KEY) == exact
    np.testing.assert_allclose(plastax.effective_rank_loss(SEQUENCES, sketch=WIDTH, key=KEY), exact, rtol=1e-6)


@pytest.mark.parametrize("make", ["l2_er", "effective_rank_step"])
def test_transformations_draw_samples_and_rows_at_each_step(make):
    settings = {"samples": 4, "rows": 12, "sketch": 3, "key": jax.random.key(5), "layers": "block*.mlp", "interval": 2}
    if make == "l2_er":
        transform, sign = plastax.l2_er(features, weight_decay=0.0, er_weight=1.0, **settings), 1
    else:
        transform, sign = plastax.effective_rank_step(features, 1.0, **settings), -1
    zeros, state, seen = jax.tree.map(jnp.zeros_like, PARAMS), transform.init(PARAMS), []
    update = jax.jit(functools.partial(transform.update, inputs=TOKENS))
    for step in range(4):
        updates, state = update(zeros, state, PARAMS)
        if step % 2 == 0:
            assert not any(leaf.any() for leaf in jax.tree.leaves(updates))
            continue
        samples_key, key = jax.random.split(jax.random.fold_in(jax.random.key(5), step))
        index, _ = choose(BATCH, 4, samples_key, None)

        def by_hand(params, index=index, key=key):
            hidden = features(params, TOKENS[index])["block1.mlp"]
            rows, _ = choose_rows(Rows(hidden.reshape(-1, WIDTH), None), 12, key)
            return -sign * plastax.sketched_effective_rank(rows, size=3, key=key)

        expected = jax.grad(by_hand)(PARAMS)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), updates, expected)
        seen.append(updates["up"])
    assert jnp.abs(seen[0] - seen[1]).max() > 1e-3


def test_chosen_samples_of_a_window_are_those_that_arrived():
    transform = plastax.add_effective_rank(
        lambda params, inputs: inputs @ params, 1.0, window=3, inputs_like=jnp.ones((2, 4)), samples=4
    )
    kernel, minibatch = PARAMS["up"], TOKENS[0, :2]
    update = jax.jit(transform.update)
    # One of three minibatches so far: its two samples count, and nothing else.
    updates, state = update(jnp.zeros_like(kernel), transform.init(kernel), kernel, inputs=minibatch)
    expected = plastax.effective_rank_gradient(lambda params, inputs: inputs @ params, kernel, minibatch)
    np.testing.assert_allclose(updates, expected, rtol=1e-5, atol=1e-6)
    updates, state = update(jnp.zeros_like(kernel), state, kernel, inputs=2 * minibatch)
    both = jnp.concatenate([minibatch, 2 * minibatch])
    expected = plastax.effective_rank_gradient(lambda params, inputs: inputs @ params, kernel, both)
    np.testing.assert_allclose(updates, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("er_mask", [{"up": True, "out": False}, lambda params: {"up": True, "out": False}])
def test_only_masked_parameters_get_the_gradient(er_mask):
    def updates(**settings):
        transform = plastax.l2_er(features, weight_decay=0.0, er_weight=1.0, **settings)
        zeros = jax.tree.map(jnp.zeros_like, PARAMS)
        return jax.jit(transform.update)(zeros, transform.init(PARAMS), PARAMS, inputs=TOKENS)[0]

    found, whole = updates(er_mask=er_mask), updates()
    np.testing.assert_allclose(found["up"], whole["up"], rtol=1e-5)
    assert whole["out"]["kernel"].any()
    assert not found["out"]["kernel"].any()
    assert not found["out"]["bias"].any()


def test_patterns_select_layers():
    layers = {"block1.mlp": 1, "block1.attention": 2, "block12.mlp": 3, "head": {"[0]": 4}}
    select = lambda pattern: list(plastax.select_layers(layers, pattern))  # noqa: E731
    assert select("block*.mlp") == ["block1.mlp", "block12.mlp"]
    assert select("block?.*") == ["block1.attention", "block1.mlp"]
    assert select(["*.attention", "head"]) == ["block1.attention", "head/[0]"]
    assert select("head/[0]") == ["head/[0]"]
    with pytest.raises(ValueError, match=r"no layer named \['block3.\*'\]: there are \['block1.attention'"):
        select(["block*.mlp", "block3.*"])


@pytest.mark.parametrize("output_axis", [-1, 0])
def test_adapters_alone_get_an_effective_rank_gradient(output_axis):
    params = jax.tree.map(lambda leaf: leaf.T if output_axis == 0 else leaf, PARAMS)
    adapters = plastax.low_rank_adapters(params, 2, kernels="out", output_axis=output_axis, key=KEY)
    assert [leaf.shape for leaf in adapters["out/kernel"]] == [(WIDTH, 2), (2, 3)]
    up = jax.random.normal(jax.random.key(3), (2, 3))
    trained = {"out/kernel": adapters["out/kernel"]._replace(up=up)}
    merged = functools.partial(plastax.with_adapters, scale=0.5, output_axis=output_axis)
    kernel = merged(params, trained)["out"]["kernel"]
    kernel = kernel.T if output_axis == 0 else kernel
    np.testing.assert_allclose(kernel, PARAMS["out"]["kernel"] + 0.5 * trained["out/kernel"].down @ up, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, merged(params, adapters), params)

    def loss(params, adapters):
        whole = merged(params, adapters)
        whole = jax.tree.map(lambda leaf: leaf.T, whole) if output_axis == 0 else whole
        return plastax.effective_rank_loss(features(whole, TOKENS), layers="block1.out")

    frozen, free = jax.grad(loss, argnums=(0, 1))(params, trained)
    assert not any(leaf.any() for leaf in jax.tree.leaves(frozen))
    assert all(leaf.any() for leaf in free["out/kernel"])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_projection_and_its_gradient_are_those_of_float64(dtype):
    size, key, keep = 3, jax.random.key(7), jnp.arange(BATCH) < 4
    sequences = SEQUENCES.astype(dtype)
    projection = np.asarray(jax.random.normal(key, (WIDTH, size)), np.float64)
    projected = np.asarray(sequences, np.float64)[np.asarray(keep)].reshape(-1, WIDTH) @ projection
    truth, slope = numpy_effective_rank(projected)
    bottleneck = functools.partial(plastax.projected_effective_rank, size=size, key=key)
    value, gradient = jax.value_and_grad(plastax.effective_rank_loss)(sequences, mask=keep, rank=bottleneck)
    np.testing.assert_allclose(value, -truth, rtol=1e-6)
    expected = np.zeros(SEQUENCES.shape)
    expected[np.asarray(keep)] = -(slope @ projection.T).reshape(-1, TIME, WIDTH)
    tolerance = 2 * float(jnp.finfo(dtype).eps) * np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(gradient, np.float64), expected, atol=tolerance)
    # Layers with no more units than directions are not projected.
    whole = functools.partial(plastax.projected_effective_rank, size=WIDTH, key=key)
    assert plastax.effective_rank_loss(sequences, rank=whole) == plastax.effective_rank_loss(sequences)


def test_transformations_keep_a_projection_and_draw_other_rows_at_each_step():
    size, fixed, drawn = 2, jax.random.key(7), jax.random.key(5)
    bottleneck = functools.partial(plastax.projected_effective_rank, size=size, key=fixed)
    transform = plastax.l2_er(
        features, weight_decay=0.0, er_weight=1.0, layers="block1.mlp", rank=bottleneck, rows=12, key=drawn
    )
    projection = jax.random.normal(fixed, (WIDTH, size))
    zeros, state = jax.tree.map(jnp.zeros_like, PARAMS), transform.init(PARAMS)
    update = jax.jit(functools.partial(transform.update, inputs=TOKENS))
    for step in range(2):
        updates, state = update(zeros, state, PARAMS)
        _, key = jax.random.split(jax.random.fold_in(drawn, step))

        def by_hand(up, key=key):
            rows, _ = choose_rows(Rows(jax.nn.relu(TOKENS @ up).reshape(-1, WIDTH), None), 12, key)
            return -plastax.effective_rank(rows @ projection)

        np.testing.assert_allclose(updates["up"], jax.grad(by_hand)(PARAMS["up"]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7, 8, 15, 32, 33, 256])
def test_settings_for_sequences_take_few_passes(batch):
    settings = plastax.sequence_settings(batch)
    assert 1 <= settings["samples"] <= batch
    assert settings["samples"] / batch / settings["interval"] <= 0.04
    if batch == 32:
        assert settings == {"interval": 10, "samples": 4, "rows": 512}


@pytest.mark.parametrize("make", [plastax.add_effective_rank, plastax.effective_rank_step])
def test_transformations_take_the_settings_for_sequences(make):
    settings = plastax.sequence_settings(BATCH)
    transform = make(features, 1.0, layers="block*.mlp", **settings)
    zeros, state = jax.tree.map(jnp.zeros_like, PARAMS), transform.init(PARAMS)
    update = jax.jit(functools.partial(transform.update, inputs=TOKENS))
    for step in range(1, settings["interval"] + 1):
        updates, state = update(zeros, state, PARAMS)
        assert bool(updates["up"].any()) == (step == settings["interval"])


def test_bad_arguments_are_named():
    adapters = functools.partial(plastax.low_rank_adapters, key=KEY)
    for make, message in (
        (lambda: plastax.effective_rank_loss(SEQUENCES, rows=4), "rows= and sketch= are random: pass key="),
        (lambda: plastax.l2_er(features, weight_decay=0, er_weight=1, rows=0), "rows must be a whole number"),
        (lambda: plastax.effective_rank_step(features, 1, samples=-1), "samples must be a whole number"),
        (lambda: plastax.add_effective_rank(features, 1, sketch=2, rank=max), "leave out rank="),
        (lambda: plastax.projected_effective_rank(SEQUENCES[0], size=0, key=KEY), "size must be a whole number"),
        (lambda: plastax.sequence_settings(0), "batch must be a whole number"),
        (lambda: plastax.adapter_features(adapters(PARAMS, 1, kernels="out"), {}), "needs the inputs of its layer"),
        (lambda: choose(10**5, 10**5 - 1, KEY, None), "at most 46340 rows can be chosen, got 99999"),
        (lambda: adapters(PARAMS, 9, kernels="out"), "rank=9 is more than the 3 directions of 'out/kernel'"),
        (lambda: adapters(PARAMS, 1, kernels="out/bias"), "selects vectors only"),
        (lambda: adapters({"conv": jnp.ones((3, 3, 1, 2))}, 1, kernels="conv"), "needs a kernel with two axes"),
        (lambda: plastax.with_adapters({}, adapters(PARAMS, 1, kernels="out")), r"no arrays named \['out/kernel'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def temporary_bytes(function, *shapes):
    compiled = jax.jit(jax.value_and_grad(function)).lower(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
    planned = compiled.compile().memory_analysis()
    assert planned is not None
    return planned.temp_size_in_bytes


def test_memory_beside_the_features_does_not_grow_with_rows():
    width = 64
    few, many = (temporary_bytes(plastax.effective_rank, (rows, width)) for rows in (8192, 65536))
    assert many <= 1.1 * few
    assert few < 8 * 8192 * width  # Not even the fewer rows were copied to float64 at once.


PROJECTED = {"rank": functools.partial(plastax.projected_effective_rank, size=16, key=KEY)}


@pytest.mark.parametrize("settings", [{}, {"rows": 512}, {"sketch": 16}, {"rows": 512, "sketch": 16}, PROJECTED])
def test_no_array_is_quadratic_in_rows(settings):
    rows, width = 20_000, 64
    loss = functools.partial(plastax.effective_rank_loss, key=KEY, **settings)
    program = jax.make_jaxpr(jax.grad(loss))(jax.ShapeDtypeStruct((20, 1000, width), jnp.float32))
    sizes = [np.prod(out.aval.shape) for equation in equations(program.jaxpr) for out in equation.outvars]
    assert rows * width in sizes
    assert max(sizes) <= rows * width


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_blocks_of_tall_features_add_up(dtype):
    """A block and a remainder, a mask, a batch, dead units, and features wider than a block of rows is not."""
    rng = np.random.default_rng(0)
    tall = np.maximum(rng.normal(size=(2, 5000, 6)), 0)
    tall[..., 3] = 0
    mask = rng.random((2, 5000)) < 0.5
    tall = jnp.asarray(tall, dtype)
    ranks, pullback = jax.vjp(lambda f: plastax.effective_rank(f, mask=jnp.asarray(mask)), tall)
    (gradients,) = pullback(jnp.ones_like(ranks))
    for features, keep, rank, gradient in zip(np.asarray(tall, np.float64), mask, ranks, gradients, strict=True):
        truth, slope = numpy_effective_rank(np.where(keep[:, None], features, 0))
        np.testing.assert_allclose(rank, truth, rtol=1e-6)
        tolerance = 2 * float(jnp.finfo(dtype).eps) * np.abs(slope).max()
        np.testing.assert_allclose(np.asarray(gradient, np.float64), slope, atol=tolerance)
