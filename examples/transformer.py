"""L2-ER in a decoder-only transformer: a small GPT in plain Equinox learns the bytes of a Python file.

Effective rank is raised in the MLP of the last block, on other random tokens at each step: the cost grows with the
smaller of rows and width, cubed, so 64 rows of a minibatch of 512 tokens cost next to nothing.
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

    def forward(params, tokens):
        return jax.vmap(eqx.combine(params, static))(tokens[:, :-1])

    def loss(params, tokens):
        logits, _ = forward(params, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def features(params, tokens):
        """[batch, time, width]: each position is a row."""
        return forward(params, tokens)[1]

    regularizer = plastax.l2_er(
        features,
        weight_decay=1e-4,
        er_weight=er_weight,
        mask=matrices,
        layers=f"block{BLOCKS}",  # the last block only
        rows=64,
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), regularizer, optax.adam(3e-3))

    @jax.jit
    def step(params, opt_state, key):
        starts = jax.random.randint(key, (16, 1), 0, len(text) - CONTEXT)
        tokens = text[starts + jnp.arange(CONTEXT + 1)]
        value, gradients = jax.value_and_grad(loss)(params, tokens)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=tokens)
        return optax.apply_updates(params, updates), opt_state, value

    opt_state = optimizer.init(params)
    for count in range(1, steps + 1):
        params, opt_state, value = step(params, opt_state, jax.random.key(count))
        if count == 1 or count % 50 == 0:
            # The state of the transformation holds the last effective rank: it costs nothing to log.
            rank = optax.tree.get(opt_state, "effective_rank")
            print(f"step {count}: loss {value:.2f}, effective rank of the last block {rank:.1f} of 64")
    return float(value), float(optax.tree.get(opt_state, "effective_rank"))


if __name__ == "__main__":
    main()
