"""Continual fine-tuning with low-rank adapters and L2-ER: a small transformer reads one Python file after another.

The transformer learns one file, and is frozen. Then adapters (LoRA) on the second layers of its MLPs learn a stream of
other files. L2-ER acts on the adapters' own features, the few directions that their two factors pass on: it costs next
to nothing, and reaches no other parameters.
"""

import argparse
import calendar
import inspect
import json.decoder
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import plastax


CONTEXT, RANK, BATCH = 32, 8, 16
KERNELS = "blocks/*/mlp/out/kernel"


def as_tokens(module):
    return jnp.frombuffer(inspect.getsource(module).encode()[:10_000], jnp.uint8).astype(jnp.int32)


def draw(text, key, number=BATCH):
    """Sequences from random places: [batch, time + 1]."""
    starts = jax.random.randint(key, (number, 1), 0, len(text) - CONTEXT)
    return text[starts + jnp.arange(CONTEXT + 1)]


def loss(model, tokens):
    logits, _, _ = model(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def features_of_adapters(model, adapters, tokens):
    """What each adapter's two factors make of the inputs of its layer, the hidden layer of an MLP."""
    _, hidden, _ = plastax.with_adapters(model, adapters)(tokens[:, :-1])
    inputs = {f"blocks/{i}/mlp/out/kernel": hidden[f"block{i + 1}.mlp"] for i in range(len(model.blocks))}
    return plastax.adapter_features(adapters, inputs)


def trainer(objective, optimizer):
    """A compiled program that trains on one file, one step for each key."""

    @jax.jit
    def train(params, opt_state, text, keys):
        def step(carry, key):
            params, opt_state = carry
            tokens = draw(text, key)
            gradients = jax.grad(objective)(params, tokens)
            updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=tokens)
            return (optax.apply_updates(params, updates), opt_state), None

        return jax.lax.scan(step, (params, opt_state), keys)[0]

    return train


def main(steps: int = 100, er_weight: float = 3e-2) -> tuple[list[tuple[float, float]], float]:
    model = plastax.models.Transformer(256, CONTEXT, 32, heads=2, depth=2, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.with_extra_args_support(optax.adam(3e-3))
    text, state = as_tokens(argparse), optimizer.init(params)
    learn = trainer(lambda params, tokens: loss(eqx.combine(params, static), tokens), optimizer)
    params, _ = learn(params, state, text, jax.random.split(jax.random.key(1), 2 * steps))
    model = eqx.combine(params, static)

    adapters = plastax.low_rank_adapters(model, RANK, kernels=KERNELS, key=jax.random.key(2))
    features = lambda adapters, tokens: features_of_adapters(model, adapters, tokens)  # noqa: E731
    adapted = lambda adapters, tokens: loss(plastax.with_adapters(model, adapters), tokens)  # noqa: E731
    # Every tenth step, on 4 of the 16 sequences.
    regularizer = plastax.l2_er(features, weight_decay=1e-4, er_weight=er_weight, interval=10, samples=4)
    optimizer = optax.chain(regularizer, optax.adam(3e-3))
    learn, state, losses = trainer(adapted, optimizer), optimizer.init(adapters), []

    @jax.jit
    def evaluate(adapters, tokens):
        return adapted(adapters, tokens), -plastax.effective_rank_loss(features(adapters, tokens))

    for task, module in enumerate((textwrap, json.decoder, calendar)):
        text = as_tokens(module)
        some = draw(text, jax.random.key(99), 64)
        before, _ = map(float, evaluate(adapters, some))
        adapters, state = learn(adapters, state, text, jax.random.split(jax.random.key(10 + task), steps))
        after, rank = map(float, evaluate(adapters, some))
        losses.append((before, after))
        print(f"{module.__name__}: loss {before:.2f} -> {after:.2f}, adapters use {rank:.1f} of {RANK} directions")
        state = plastax.restart_windows(state)
    trained, total = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (adapters, params))
    print(f"{trained} parameters were trained, and {total} were not touched")
    return losses, rank


if __name__ == "__main__":
    main()
