"""L2-ER in a decoder-only transformer: a small GPT in plain Equinox learns the bytes of a Python file.

Effective rank is part of the training loss, on the features of its own forward pass and on 512 random tokens, others at
each step. So it needs no second pass, and its decompositions have side 512 at most, however wide the network is.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import plastax


CONTEXT, WIDTH, HEADS, BLOCKS = 32, 32, 2, 2


class Block(eqx.Module):
    attention_norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    mlp_norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.attention_norm = eqx.nn.LayerNorm(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=keys[0])
        self.mlp_norm = eqx.nn.LayerNorm(WIDTH)
        self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=keys[1])
        self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=keys[2])

    def __call__(self, x):
        """From [time, width] to [time, width], with the hidden layer of the MLP."""
        normed = jax.vmap(self.attention_norm)(x)
        causal = jnp.tril(jnp.ones((len(x), len(x)), bool))
        x = x + self.attention(normed, normed, normed, mask=causal)
        hidden = jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.mlp_norm)(x)))
        return x + jax.vmap(self.down)(hidden), hidden


class Transformer(eqx.Module):
    bytes_in: eqx.nn.Embedding
    positions: eqx.nn.Embedding
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    bytes_out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, BLOCKS + 3)
        self.bytes_in = eqx.nn.Embedding(256, WIDTH, key=keys[0])
        self.positions = eqx.nn.Embedding(CONTEXT, WIDTH, key=keys[1])
        self.blocks = [Block(key) for key in keys[3:]]
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.bytes_out = eqx.nn.Linear(WIDTH, 256, key=keys[2])

    def __call__(self, tokens):
        """From [time] bytes to [time, 256] logits, with the features of each block."""
        x = jax.vmap(self.bytes_in)(tokens) + jax.vmap(self.positions)(jnp.arange(len(tokens)))
        features = {}
        for index, block in enumerate(self.blocks, 1):
            x, features[f"block{index}"] = block(x)
        return jax.vmap(self.bytes_out)(jax.vmap(self.norm)(x)), features


def matrices(params):
    """Weight decay for kernels and embeddings, not for biases and norms."""
    return jax.tree.map(lambda param: param.ndim > 1, params)


def main(steps: int = 200, er_weight: float = 1e-2) -> tuple[float, float]:
    params, static = eqx.partition(Transformer(jax.random.key(0)), eqx.is_inexact_array)
    text = jnp.frombuffer(Path(argparse.__file__).read_bytes(), jnp.uint8).astype(jnp.int32)

    def loss(params, tokens, key):
        logits, features = jax.vmap(eqx.combine(params, static))(tokens[:, :-1])
        task = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
        # Features are [batch, time, width]: each position is a row.
        er_loss = plastax.effective_rank_loss(features, layers="block*", rows=512, key=key)
        return task + er_weight * er_loss, (task, -er_loss)

    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.add_decayed_weights(1e-4, mask=matrices), optax.adam(3e-3)
    )

    @jax.jit
    def step(params, opt_state, key):
        key, rows_key = jax.random.split(key)
        starts = jax.random.randint(key, (32, 1), 0, len(text) - CONTEXT)
        tokens = text[starts + jnp.arange(CONTEXT + 1)]
        gradients, logs = jax.grad(loss, has_aux=True)(params, tokens, rows_key)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, logs

    opt_state = optimizer.init(params)
    for count in range(1, steps + 1):
        params, opt_state, (value, rank) = step(params, opt_state, jax.random.key(count))
        if count == 1 or count % 50 == 0:
            print(f"step {count}: loss {value:.2f}, effective rank of the MLPs {rank:.1f} of {4 * WIDTH}")
    return float(value), float(rank)


if __name__ == "__main__":
    main()
