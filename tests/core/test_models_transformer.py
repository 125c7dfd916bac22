"""The transformer against a transcription in numpy, and what makes it a language model."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import quick_jit, quick_key, random_model

import plastax
from plastax._transforms.parameter_roles import role_by_shape_and_name
from plastax.models import Transformer
from plastax.models.positions import rotate


VARIANTS = {
    "rotary": {"activation": "relu"},
    "learned": {"positions": "learned", "norm": "rms", "activation": "gelu", "layer_norm": True},
}
VOCABULARY, CONTEXT = 7, 6


@functools.cache
def model_of(name):
    return random_model(lambda key: Transformer(VOCABULARY, CONTEXT, 8, 2, 2, 10, key=key, **VARIANTS[name]))


def tokens_of(batch, time, seed=0):
    return jnp.asarray(np.random.default_rng(seed).integers(0, VOCABULARY, (batch, time)), jnp.int32)


run = quick_jit(lambda model, x: model(x)[:2])


# The transcription: one sequence and one position at a time, with complex numbers for rotary positions.


def _norm(layer, x):
    if hasattr(layer, "bias"):
        x = x - x.mean()
        x = x / np.sqrt((x**2).mean() + 1e-6)
        return x * layer.scale + layer.bias
    return x / np.sqrt((x**2).mean() + 1e-6) * layer.scale


def _turned(head, position):
    half = len(head) // 2
    numbers = head[:half] + 1j * head[half:]
    numbers = numbers * np.array([np.exp(1j * position * 10_000.0 ** (-2 * i / len(head))) for i in range(half)])
    return np.concatenate([numbers.real, numbers.imag])


def _attention(layer, inputs, position):
    """The features of one position, head by head."""
    size = inputs[0].size // layer.heads
    found = []
    for head in range(layer.heads):
        own = slice(head * size, (head + 1) * size)
        queries, keys, values = (
            [(x @ part.kernel)[own] for x in inputs] for part in (layer.query, layer.key, layer.value)
        )
        if layer.rotary:
            queries, keys = ([_turned(x, t) for t, x in enumerate(each)] for each in (queries, keys))
        scores = np.array([queries[position] @ keys[t] / np.sqrt(size) for t in range(position + 1)])
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        found.append(sum(weight * values[t] for t, weight in enumerate(weights)))
    return np.concatenate(found)


def _activation(name, h):
    return np.maximum(h, 0) if name == "relu" else 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))


def transcription(model, tokens):
    """Logits and features of one sequence."""
    stream = [model.token_embedding[token] for token in tokens]
    if model.position_embedding is not None:
        stream = [x + model.position_embedding[t] for t, x in enumerate(stream)]
    features = {}
    for number, block in enumerate(model.blocks, 1):
        normed = [_norm(block.attention_norm, x) for x in stream]
        heads = [_attention(block.attention, normed, t) for t in range(len(stream))]
        stream = [x + head @ block.attention.out.kernel for x, head in zip(stream, heads, strict=True)]
        hidden = []
        for x in stream:
            h = _norm(block.mlp_norm, x) @ block.mlp.hidden.layer.kernel + block.mlp.hidden.layer.bias
            if block.mlp.hidden.norm is not None:
                h = _norm(block.mlp.hidden.norm, h)
            hidden.append(_activation(block.mlp.hidden.activation, h))
        stream = [x + h @ block.mlp.out.kernel + block.mlp.out.bias for x, h in zip(stream, hidden, strict=True)]
        features |= {f"block{number}.attention": np.stack(heads), f"block{number}.mlp": np.stack(hidden)}
    return np.stack([_norm(model.norm, x) @ model.head.kernel + model.head.bias for x in stream]), features


@pytest.mark.parametrize("time", [1, CONTEXT])
@pytest.mark.parametrize("name", VARIANTS)
def test_forward_equals_a_float64_transcription(name, time):
    with jax.enable_x64(True):
        model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model_of(name))
        x = tokens_of(2, time)
        logits, features = run(model, x)
        assert logits.dtype == jnp.float64
        host = jax.tree.map(np.asarray, model)
        for i, tokens in enumerate(np.asarray(x)):
            expected, expected_features = transcription(host, tokens)
            np.testing.assert_allclose(logits[i], expected, rtol=1e-10, atol=1e-10)
            assert list(features) == list(expected_features)
            for key, value in expected_features.items():
                np.testing.assert_allclose(features[key][i], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_depend_on_the_tokens_up_to_their_position_and_on_no_others(name):
    model, x = model_of(name), tokens_of(1, CONTEXT)
    before = run(model, x)[0]
    for position in range(CONTEXT):
        other = x.at[0, position].set((x[0, position] + 1) % VOCABULARY)
        difference = np.abs(np.asarray(run(model, other)[0] - before)).max(axis=(0, 2))
        # The same program with the same numbers at these positions.
        np.testing.assert_array_equal(difference[:position], 0)
        assert np.all(difference[position:] > 1e-5)


def test_rotary_products_depend_on_distances_alone():
    query, key = np.random.default_rng(0).normal(size=(2, 1, 2, 6))
    with jax.enable_x64(True):
        queries, keys = (rotate(jnp.asarray(np.broadcast_to(each, (300, 2, 6)))) for each in (query, key))
        products = np.einsum("qhd,khd->hqk", queries, keys)
    for distance in (0, 1, 40):
        along = np.stack([np.diagonal(head, -distance) for head in products])
        np.testing.assert_allclose(along, np.broadcast_to(along[:, :1], along.shape), rtol=1e-9, atol=1e-9)
    assert np.std(products) > 0.1
    np.testing.assert_array_equal(queries[0], query[0])


def test_rotary_angles_are_exact_in_half_precision():
    # Position 513 is not a number of bfloat16.
    x = jnp.ones((514, 1, 2), jnp.bfloat16)
    turned = np.asarray(rotate(x)[513, 0].astype(jnp.float32))
    expected = np.array([np.cos(513) - np.sin(513), np.sin(513) + np.cos(513)])
    np.testing.assert_allclose(turned, expected, atol=2 * float(jnp.finfo(jnp.bfloat16).eps))


def test_gradient_equals_finite_differences():
    with jax.enable_x64(True):
        # A smooth activation: a step across the corner of a ReLU has no derivative.
        model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model_of("learned"))
        x, targets = tokens_of(2, CONTEXT), tokens_of(2, CONTEXT, seed=1)

        def loss(model):
            return optax.softmax_cross_entropy_with_integer_labels(model(x)[0], targets).mean()

        value_and_grad = quick_jit(jax.value_and_grad(loss))
        gradient = value_and_grad(model)[1]
        rng = np.random.default_rng(2)
        direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), model)
        step = 1e-5
        ends = [
            value_and_grad(jax.tree.map(lambda p, d, s=sign: p + s * step * d, model, direction))[0] for sign in (1, -1)
        ]
        slope = sum(jnp.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
        # The error of a central difference is of the order of step squared, and rounding of eps / step.
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6)


def test_tokens_outside_of_the_vocabulary_are_named_and_never_looked_up():
    model = model_of("rotary")
    with pytest.raises(ValueError, match="tokens from 0 to vocabulary - 1 = 6, got 7"):
        model(jnp.array([[0, 7]]))
    with pytest.raises(ValueError, match="got -1"):
        model(jnp.array([[-1, 2]]))
    logits = run(model, jnp.array([[0, 1, 7], [2, -1, 3], [1, 2, 3]]))[0]
    finite = np.isfinite(np.asarray(logits)).all(axis=2)
    np.testing.assert_array_equal(finite, [[False, False, False], [False, False, False], [True, True, True]])


def test_bytes_and_other_whole_numbers_are_tokens():
    model = model_of("rotary")
    x = tokens_of(2, 3)
    np.testing.assert_array_equal(run(model, x.astype(jnp.uint8))[0], run(model, x)[0])
    with pytest.raises(TypeError, match="integer tokens, got float32"):
        model(jnp.zeros((1, 2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 3}, "`heads` must divide `width`, got width=8 and heads=3"),
        ({"heads": 8}, "even size, got width / heads = 1"),
        ({"positions": "sinusoidal"}, "`positions` must be one of ['rotary', 'learned'], got 'sinusoidal'"),
        ({"norm": "batch"}, "`norm` must be one of ['layer', 'rms'], got 'batch'"),
        ({"activation": "swoosh"}, "`activation` must be one of"),
        ({"depth": 0}, "`depth` must be a whole number of at least 1, got 0"),
        ({"mlp_width": 0}, "`mlp_width` must be a whole number"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Transformer(VOCABULARY, CONTEXT, **{"width": 8, "heads": 2, **arguments}, key=jax.random.key(0))


def test_initial_kernels_have_the_stated_sizes_and_no_key_is_used_twice():
    model = quick_jit(lambda key: Transformer(300, 9, 64, 4, 2, positions="learned", key=key))(quick_key(0))
    block, other = model.blocks
    for kernel, variance in (
        (model.token_embedding, 1 / 64),
        (model.position_embedding, 1 / 64),
        (block.attention.query.kernel, 1 / 64),
        (block.mlp.hidden.layer.kernel, 2 / 64),
        (block.mlp.out.kernel, 1 / (4 * 256)),
        (block.attention.out.kernel, 1 / (4 * 64)),
        (model.head.kernel, 1 / 64),
    ):
        # The variance of n normal numbers is known to sqrt(2 / n), and five times that is more than bad luck.
        np.testing.assert_allclose(np.var(kernel), variance, rtol=5 * np.sqrt(2 / kernel.size))
    attention = block.attention
    kernels = [attention.query.kernel, attention.key.kernel, attention.value.kernel, attention.out.kernel]
    kernels += [other.attention.query.kernel, model.token_embedding[:64], model.head.kernel[:, :64]]
    together = np.corrcoef(np.stack([np.ravel(kernel) for kernel in kernels]))
    assert np.abs(together - np.eye(len(kernels))).max() < 0.1


def test_embeddings_are_not_kernels():
    paths = jax.tree_util.tree_leaves_with_path(model_of("learned"))
    roles = {jax.tree_util.keystr(path): role_by_shape_and_name(path, leaf) for path, leaf in paths}
    assert roles[".token_embedding"] == roles[".position_embedding"] == "other"
    kernels = [name for name, role in roles.items() if role == "kernel"]
    assert len(kernels) == 2 * 6 + 1
    assert all(name.endswith(".kernel") for name in kernels)
    assert {role for name, role in roles.items() if name.endswith(".scale")} == {"scale"}


def test_concatenated_relu_has_features_twice_as_wide_and_no_resettable_units():
    model = random_model(lambda key: Transformer(VOCABULARY, CONTEXT, 8, 2, 1, 10, activation="crelu", key=key))
    assert run(model, tokens_of(1, 2))[1]["block1.mlp"].shape == (1, 2, 20)
    with pytest.raises(ValueError, match=r"crelu.*two features"):
        model.resettable_units()


def test_units_are_replaced_by_their_mean_over_all_tokens():
    """ReDo against its definition: dead units get outgoing weights of zero, and all others stay."""
    model, x = model_of("rotary"), tokens_of(3, CONTEXT)
    hidden = lambda tree: tree.blocks[1].mlp.hidden.layer  # noqa: E731
    # The third unit is off for every token, whatever it reads.
    model = eqx.tree_at(
        lambda tree: (hidden(tree).kernel, hidden(tree).bias),
        model,
        (hidden(model).kernel.at[:, 2].set(0.0), hidden(model).bias.at[2].set(-1.0)),
    )
    optimizer = plastax.redo(optax.sgd(0.0), model.resettable_units(), threshold=0.0, interval=1, key=jax.random.key(0))
    features = run(model, x)[1]
    activity = np.abs(np.asarray(features["block2.mlp"])).mean(axis=(0, 1))
    assert activity[2] == 0
    assert np.delete(activity, 2).min() > 0

    @quick_jit
    def step(model, features):
        updates, state = optimizer.update(
            jax.tree.map(jnp.zeros_like, model), optimizer.init(model), model, features=features
        )
        return optax.apply_updates(model, updates), state.replaced

    new, replaced = step(model, features)
    np.testing.assert_array_equal(replaced[1], 1)
    out, old_out = new.blocks[1].mlp.out.kernel, model.blocks[1].mlp.out.kernel
    np.testing.assert_array_equal(out[2], 0)
    np.testing.assert_array_equal(np.delete(out, 2, 0), np.delete(old_out, 2, 0))
    assert np.abs(hidden(new).kernel[:, 2]).max() > 0
    assert hidden(new).bias[2] == 0
