"""Our Adam with counts that can be reset, against optax's.

Run with `plastax bench adam`. A step computes the updates and applies them. It runs as a compiled program of its own,
whose buffers are donated; inside a scan; and inside a scan with `plastax.continual_backprop` around the optimizer,
which replaces a unit every few steps. The time of a step does not depend on how many units have been replaced.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import plastax

from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, medians, ratio


WIDTHS = (100, 1000, 2048)
CHANNELS = (3, 32, 64, 128)
CONVOLUTIONS = "3 convolutions, 2 dense"
RATE, REPLACEMENT_RATE = 1e-3, 1e-4
ENTRIES = 8_000_000
"""The number of entries that one program updates: the fewer parameters, the more steps it has."""


def dense(sizes: tuple[int, ...], key: jax.Array) -> list[dict[str, jax.Array]]:
    """The parameters of a dense network."""
    draw = jax.nn.initializers.he_uniform()
    keys = jax.random.split(key, len(sizes) - 1)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [{"kernel": draw(key, (inputs, outputs)), "bias": jnp.zeros(outputs)} for key, inputs, outputs in shapes]


def convolutional(key: jax.Array) -> list[dict[str, jax.Array]]:
    """The parameters of a small convolutional network: three convolutions and two dense layers."""
    keys = jax.random.split(key, len(CHANNELS))
    draw = jax.nn.initializers.he_uniform()
    kernels = [
        {"kernel": draw(key, (5, 5, inputs, outputs)), "bias": jnp.zeros(outputs)}
        for key, inputs, outputs in zip(keys[1:], CHANNELS[:-1], CHANNELS[1:], strict=True)
    ]
    return [*kernels, *dense((512, 128, 10), keys[0])]


def apply(optimizer, params, state, target, **extra_args):
    """One step toward a target."""
    gradients = jax.tree.map(jnp.subtract, params, target)
    updates, state = optimizer.update(gradients, state, params, **extra_args)
    return optax.apply_updates(params, updates), state


def step_by_step(optimizer, params, target, steps: int) -> Callable[[], Any]:
    """A compiled step that is called in a loop, with donated parameters and state."""
    optimizer = optax.with_extra_args_support(optimizer)
    step = jax.jit(lambda params, state: apply(optimizer, params, state, target), donate_argnums=(0, 1))
    current = [jax.tree.map(jnp.copy, params), optimizer.init(params)]

    def run():
        for _ in range(steps):
            current[:] = step(*current)
        return current

    return run


def scanned(optimizer, params, target, steps: int, **extra_args) -> Callable[[], Any]:
    """All steps in one compiled program."""
    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    def run(params, state):
        def step(carry, _):
            params, state = carry
            return apply(optimizer, params, state, target, **extra_args), None

        return jax.lax.scan(step, (params, state), length=steps)[0]

    state = optimizer.init(params)
    return lambda: run(params, state)


def replacing(optimizer, params, target, steps: int) -> Callable[[], Any]:
    """All steps in one compiled program, in which units are replaced."""
    layers = range(len(params) - 1)
    units = [
        plastax.Units.dense(f"hidden{layer}", lambda params, n=layer: params[n], lambda params, n=layer: params[n + 1])
        for layer in layers
    ]
    features = {f"hidden{layer}": jnp.ones((1, params[layer]["bias"].size)) for layer in layers}
    with warnings.catch_warnings(action="ignore"):  # It warns about optax's Adam, which is here for its speed.
        wrapped = plastax.continual_backprop(
            optimizer, units, replacement_rate=REPLACEMENT_RATE, maturity_threshold=1, key=jax.random.key(0)
        )
        return scanned(wrapped, params, target, steps, features=features)


def rows(widths: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """The rows of the table."""
    key, other = jax.random.split(jax.random.key(0))
    networks = {f"3 x {width} hidden units": partial(dense, (784, width, width, width, 10)) for width in widths}
    forms = {"compiled step": step_by_step, "scan": scanned, "scan, replacing units": replacing}
    cases = [(name, form) for name in networks for form in forms]
    # Units of convolutions need a longer description and cost the same.
    cases += [(CONVOLUTIONS, form) for form in forms if form != "scan, replacing units"]
    for name, form in cases:
        params, target = map(networks.get(name, convolutional), (key, other))
        entries = sum(leaf.size for leaf in jax.tree.leaves(params))
        steps = max(1, ENTRIES // entries)
        optimizers = {"ours": plastax.resettable_adam(RATE), "optax": optax.adam(RATE)}
        programs = {who: forms[form](optimizer, params, target, steps) for who, optimizer in optimizers.items()}
        seconds = interleaved(programs, rounds=rounds)
        yield {
            "network": name,
            "parameters": entries,
            "form": form,
            "optax ms": 1e3 * medians(seconds)["optax"] / steps,
            "plastax ms": 1e3 * medians(seconds)["ours"] / steps,
            "plastax / optax": ratio(seconds, "ours", "optax"),
        }


def main(arguments: list[str] | None = None) -> None:
    """Prints the time of a step of both, and the ratio."""
    parser = bench_parser("adam", __doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds to take medians over")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="units of each hidden layer")
    options = parser.parse_args(arguments)
    conditions = Conditions()
    found = list(rows(options.widths, options.rounds))
    title = f"Adam: one step, with its application to the parameters; medians of {options.rounds} rounds"
    show(title, found, conditions, as_json=options.json, packages=("jax", "jaxlib", "optax"))


if __name__ == "__main__":
    main()
