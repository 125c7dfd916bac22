"""Times of short programs on a device, without the time of the host."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Timed(NamedTuple):
    """Seconds of one call on the device in each round, calls in a program, and seconds until the first result."""

    seconds: list[float]
    calls: int
    cold_start: float


def time_on_device(
    function: Callable[..., Any], operands: tuple[Any, ...], *, seconds: float = 1.0, rounds: int = 20
) -> tuple[Any, Timed]:
    """The result of a function, and the time that the device takes for one call.

    One program has many calls, each of which needs the result of the one before. The time of the same program without
    the calls is subtracted, and with it the time to launch a program and to wait for it, which would be longer than
    many of the calls.

    **Arguments:**

    - `function`: can be jitted.
    - `operands`: its arguments, pytrees of arrays.
    - `seconds`: about how long to measure; at least three rounds.
    - `rounds`: the maximum number of rounds.
    """
    begin = time.perf_counter()
    result = jax.block_until_ready(jax.jit(function)(*operands))
    cold_start = time.perf_counter() - begin
    full, empty = jax.jit(_chain(function)), jax.jit(_chain(None))
    once = max(_time(full, 1, operands, warm=True), 1e-6)
    # A program of about 50 ms, within limits.
    calls = int(min(max(0.05 / once, 2), 1000))
    _time(empty, 1, operands, warm=True)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < max(rounds, 3) and (len(times) < 3 or time.perf_counter() < end):
        times.append(max(_time(full, calls, operands) - _time(empty, calls, operands), 0.0) / calls)
    return result, Timed(times, calls, cold_start)


def _chain(function):
    def run(calls, operands):
        def call(_, operands):
            # The barrier keeps the whole result alive, though only one number of it is used.
            made = operands if function is None else function(*operands)
            made = jax.lax.optimization_barrier(made)
            number = jax.tree.leaves(made)[0].ravel()[0]
            first, *others = jax.tree.leaves(operands)
            # Zero, but XLA cannot know.
            moved = first + (0 * number).astype(first.dtype)
            return jax.tree.unflatten(jax.tree.structure(operands), [moved, *others])

        return jax.lax.fori_loop(0, calls, call, operands)

    return run


def _time(program, calls, operands, warm=False):
    count = jnp.int32(calls)
    if warm:
        jax.block_until_ready(program(count, operands))
    begin = time.perf_counter()
    jax.block_until_ready(program(count, operands))
    return time.perf_counter() - begin
