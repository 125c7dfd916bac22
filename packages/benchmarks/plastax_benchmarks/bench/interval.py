"""The cost of an effective-rank step every 100 training steps, for four seeds at once.

Run with `plastax bench interval`. A network of 3 x 100 hidden units is trained with batch size 1
under `vmap`, in five ways: without effective rank; one effective-rank step alone; with the transformation in the
optimizer; with a plain `lax.cond` in its place; with a scan over blocks, which needs no branch.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

import plastax
from plastax_kernels import set_lapack_threads

from .parser import bench_parser
from .timing import interleaved, medians


SEEDS, STEPS, INTERVAL, SIZES = 4, 2000, 100, (784, 100, 100, 100, 10)
LEARNING_RATE, ER_RATE, WEIGHT_DECAY = 1e-2, 1e-3, 1e-3


def init(key):
    """Parameters of a dense ReLU network, as a plain list."""
    draw = jax.nn.initializers.he_uniform()
    keys = jax.random.split(key, len(SIZES) - 1)
    return [(draw(k, (i, o)), jnp.zeros(o)) for k, i, o in zip(keys, SIZES[:-1], SIZES[1:], strict=True)]


def features(params, inputs):
    """All hidden features."""
    hidden = []
    for kernel, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ kernel + bias)
        hidden.append(inputs)
    return hidden


def loss(params, inputs, labels):
    """Cross-entropy of one minibatch."""
    kernel, bias = params[-1]
    logits = features(params, inputs)[-1] @ kernel + bias
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train(optimizer, params, state, batches):
    """A scan of optimizer steps."""

    def step(carry, batch):
        params, state = carry
        inputs, labels = batch
        gradients = jax.grad(loss)(params, inputs, labels)
        updates, state = optimizer.update(gradients, state, params, inputs=inputs)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, state), batches)
    return params


def er_step(params, inputs):
    """One plain effective-rank step."""
    gradient = plastax.effective_rank_gradient(features, params, inputs)
    return jax.tree.map(lambda p, g: p - ER_RATE * g, params, gradient)


def train_in_blocks(optimizer, params, state, batches):
    """A scan over blocks of INTERVAL steps, each with an effective-rank step at its end."""
    blocks = jax.tree.map(lambda x: x.reshape(-1, INTERVAL, *x.shape[1:]), batches)

    def block(carry, block):
        def step(carry, batch):
            params, state = carry
            inputs, labels = batch
            updates, state = optimizer.update(jax.grad(loss)(params, inputs, labels), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(step, carry, block)
        return (er_step(params, block[0].reshape(-1, SIZES[0])), state), None

    (params, _), _ = jax.lax.scan(block, (params, state), blocks)
    return params


def plain_cond_step():
    """A plain `lax.cond` in the optimizer. Under `vmap` it is a select, which computes the branch at every step."""
    example = jnp.zeros((1, SIZES[0]))

    def init(params):
        return jnp.zeros((), jnp.int32), jnp.zeros((INTERVAL, *example.shape))

    def update(updates, state, params, *, inputs, **_):
        count, window = state
        window = jax.lax.dynamic_update_index_in_dim(window, inputs, count % INTERVAL, 0)
        count = count + 1

        def act(updates):
            stepped = er_step(optax.apply_updates(params, updates), window.reshape(-1, SIZES[0]))
            return jax.tree.map(jnp.subtract, stepped, params)

        return jax.lax.cond(count % INTERVAL == 0, act, lambda updates: updates, updates), (count, window)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def main(arguments: list[str] | None = None) -> None:
    """Prints the time of each program, and its ratio to the ideal cost."""
    parser = bench_parser("interval", __doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds to take medians over")
    rounds = parser.parse_args(arguments).rounds
    set_lapack_threads(1)
    base = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(LEARNING_RATE))
    example = jax.ShapeDtypeStruct((1, SIZES[0]), jnp.float32)
    step = plastax.effective_rank_step(features, ER_RATE, interval=INTERVAL, window=INTERVAL, inputs_like=example)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    params = jax.vmap(init)(keys)

    def batches_of(steps):
        inputs = jax.random.uniform(jax.random.key(1), (SEEDS, steps, 1, SIZES[0]))
        return inputs, jax.random.randint(jax.random.key(2), (SEEDS, steps, 1), 0, SIZES[-1])

    def program(train, optimizer, steps=STEPS):
        compiled, batches = jax.jit(jax.vmap(partial(train, optimizer))), batches_of(steps)
        # As between two calls of a training program: each seed has its own count.
        state = jax.vmap(optimizer.init)(params)
        return lambda: compiled(params, state, batches)

    compiled_step = jax.jit(jax.vmap(er_step))
    windows = jax.random.uniform(jax.random.key(3), (SEEDS, INTERVAL, SIZES[0]))
    programs = {
        "training without it": program(train, optax.with_extra_args_support(base)),
        "one effective-rank step": lambda: compiled_step(params, windows),
        "transformation": program(train, optax.chain(base, step)),
        "scan over blocks": program(train_in_blocks, base),
    }
    typical = medians(interleaved(programs, rounds=rounds))
    few = INTERVAL  # The select is too slow for all steps.
    slow = medians(interleaved({"select": program(train, optax.chain(base, plain_cond_step()), few)}, rounds=1))
    typical["plain lax.cond (scaled up)"] = slow["select"] * STEPS / few

    ideal = typical["training without it"] + STEPS / INTERVAL * typical["one effective-rank step"]
    print(f"{STEPS} steps, {SEEDS} seeds, an effective-rank step every {INTERVAL}; medians of {rounds} rounds")
    for name, seconds in typical.items():
        print(f"  {name:28} {1e3 * seconds:9.1f} ms   {seconds / ideal:6.2f}x ideal")
    print(f"  ideal = training without it + {STEPS // INTERVAL} effective-rank steps = {1e3 * ideal:.1f} ms")


if __name__ == "__main__":
    main()
