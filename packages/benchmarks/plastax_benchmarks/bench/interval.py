"""The cost of an effective-rank step every 100 training steps, for one seed and for four seeds at once.

Run with `plastax bench interval`. A network of 3 x 100 hidden units is trained with batch size 1 in a scan: without
effective rank; with `plastax.l2_er` before the optimizer; with `plastax.effective_rank_step` after it; with an
effective-rank step on the parameters themselves, in `plastax.every`; in a scan over blocks, which needs no branch; and,
for several seeds under `vmap`, with a plain `lax.cond`. The ideal is the training without effective rank plus the
effective-rank steps alone.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import plastax
from plastax_kernels import set_lapack_threads

from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, medians, ratio


INTERVAL, INPUTS, CLASSES = 100, 784, 10
LEARNING_RATE, ER_RATE, WEIGHT_DECAY = 1e-2, 1e-3, 1e-3
TRAINING, IDEAL = "training without it", "ideal"


def init(width, key):
    """Parameters of a dense ReLU network, as a plain list."""
    sizes = (INPUTS, width, width, width, CLASSES)
    draw = jax.nn.initializers.he_uniform()
    keys = jax.random.split(key, len(sizes) - 1)
    return [(draw(k, (i, o)), jnp.zeros(o)) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)]


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


def train_on_parameters(optimizer, params, state, batches):
    """A scan of optimizer steps, with an effective-rank step on the parameters after every INTERVAL of them."""
    window = jnp.zeros((INTERVAL, INPUTS))

    def step(carry, batch):
        params, state, window, count = carry
        inputs, labels = batch
        window = jax.lax.dynamic_update_slice_in_dim(window, inputs, count % INTERVAL, 0)
        updates, state = optimizer.update(jax.grad(loss)(params, inputs, labels), state, params)
        params, count = optax.apply_updates(params, updates), count + 1
        params = plastax.every(INTERVAL, count, er_step, lambda params, _: params, params, window)
        return (params, state, window, count), None

    (params, *_), _ = jax.lax.scan(step, (params, state, window, jnp.zeros((), jnp.int32)), batches)
    return params


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
        return (er_step(params, block[0].reshape(-1, INPUTS)), state), None

    (params, _), _ = jax.lax.scan(block, (params, state), blocks)
    return params


def plain_cond_step():
    """A plain `lax.cond` in the optimizer. Under `vmap` it is a select, which computes the branch at every step."""
    example = jnp.zeros((1, INPUTS))

    def init(params):
        return jnp.zeros((), jnp.int32), jnp.zeros((INTERVAL, *example.shape))

    def update(updates, state, params, *, inputs, **_):
        count, window = state
        window = jax.lax.dynamic_update_index_in_dim(window, inputs, count % INTERVAL, 0)
        count = count + 1

        def act(updates):
            stepped = er_step(optax.apply_updates(params, updates), window.reshape(-1, INPUTS))
            return jax.tree.map(jnp.subtract, stepped, params)

        return jax.lax.cond(count % INTERVAL == 0, act, lambda updates: updates, updates), (count, window)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def rows(seeds: int, width: int, steps: int, rounds: int) -> Iterator[dict[str, Any]]:
    """The rows of the table for a number of seeds. A single one is trained without `vmap`."""
    base = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(LEARNING_RATE))
    often = {"interval": INTERVAL, "window": INTERVAL, "inputs_like": jax.ShapeDtypeStruct((1, INPUTS), jnp.float32)}
    after = plastax.effective_rank_step(features, ER_RATE, **often)
    before = plastax.l2_er(features, weight_decay=WEIGHT_DECAY, er_weight=ER_RATE / LEARNING_RATE, **often)
    batched: Callable[..., Any] = jax.vmap if seeds > 1 else lambda function: function
    shape = (seeds,) if seeds > 1 else ()
    params = batched(partial(init, width))(jax.random.split(jax.random.key(0), shape))

    def program(train, optimizer, steps=steps):
        inputs = jax.random.uniform(jax.random.key(1), (*shape, steps, 1, INPUTS))
        batches = inputs, jax.random.randint(jax.random.key(2), (*shape, steps, 1), 0, CLASSES)
        # As between two calls of a training program: each seed has its own count.
        state = batched(optimizer.init)(params)
        compiled = jax.jit(batched(partial(train, optimizer)))
        return lambda: compiled(params, state, batches)

    window = jax.random.uniform(jax.random.key(3), (*shape, INTERVAL, INPUTS))
    one_step = jax.jit(batched(er_step))
    programs = {
        TRAINING: program(train, optax.with_extra_args_support(base)),
        "one effective-rank step": lambda: one_step(params, window),
        "l2_er": program(train, optax.chain(before, optax.sgd(LEARNING_RATE))),
        "effective_rank_step": program(train, optax.chain(base, after)),
        "every, on the parameters": program(train_on_parameters, base),
        "scan over blocks": program(train_in_blocks, base),
    }
    seconds = interleaved(programs, rounds=rounds)
    pairs = zip(seconds[TRAINING], seconds["one effective-rank step"], strict=True)
    seconds[IDEAL] = [training + steps / INTERVAL * step for training, step in pairs]
    if seeds > 1:
        # It is too slow for all steps.
        few = {"plain": program(train, optax.chain(base, plain_cond_step()), INTERVAL)}
        scaled = interleaved(few, rounds=1)["plain"][0] * steps / INTERVAL
        seconds["plain lax.cond (scaled up)"] = [scaled] * rounds
    for name, time in medians(seconds).items():
        yield {"seeds": seeds, "program": name, "ms": 1e3 * time, "of ideal": ratio(seconds, name, IDEAL)}


def main(arguments: list[str] | None = None) -> None:
    """Prints the time of each program, and its ratio to the ideal cost."""
    parser = bench_parser("interval", __doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds to take medians over")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 4], help="numbers of seeds")
    parser.add_argument("--width", type=int, default=100, help="units of each hidden layer")
    parser.add_argument("--steps", type=int, default=2000, help="training steps, a multiple of 100")
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.steps % INTERVAL:
        raise ValueError(f"--steps must be a positive multiple of {INTERVAL}, got {options.steps}")
    set_lapack_threads(1)
    conditions = Conditions()
    found = [row for seeds in options.seeds for row in rows(seeds, options.width, options.steps, options.rounds)]
    title = (
        f"{options.steps} steps of batch size 1, 3 x {options.width} hidden units, an effective-rank step every "
        f"{INTERVAL}; medians of {options.rounds} rounds"
    )
    show(title, found, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
