"""What L2-ER adds to a training step of a transformer.

Run with `plastax bench transformer`. For several settings: operations by the compiler, which does not count
decompositions, and times, both as a share of a plain training step with Adam; and the memory that the compiler plans.
"in the loss" is a training step with `plastax.effective_rank_loss` in its loss, less the plain step. The other rows are
the gradient of `plastax.add_effective_rank`, divided by the interval. Its defaults take all rows of all features: their
decompositions take minutes, and are not run without --defaults.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import plastax
from plastax_kernels import set_lapack_threads

from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog, interleaved, medians


STEP, DEFAULTS = "a training step", "defaults, all rows of all features"
ALL = "block*.mlp"


def losses() -> dict[str, dict[str, Any]]:
    """Settings of `plastax.effective_rank_loss` by name."""
    chosen = [{"rows": 256}, {"rows": 512}, {"rows": 1024}, {"rows": 1024, "sketch": 256}]
    return {f"in the loss, all MLPs, {_words(each)}": {**each, "layers": ALL} for each in chosen}


def transforms(depth: int, sequences: int) -> dict[str, dict[str, Any]]:
    """Settings of `plastax.add_effective_rank` by name, from the plain ones to the cheap ones."""
    some = {"samples": max(sequences // 8, 1), "rows": 1024, "interval": 10}
    recommended = plastax.sequence_settings(sequences)
    chosen = [{"rows": 1024}, {"rows": 1024, "interval": 10}, some, {**some, "sketch": 256}]
    return {
        DEFAULTS: {},
        **{f"all MLPs, {_words(each)}": {**each, "layers": ALL} for each in chosen},
        f"last MLP, {_words(chosen[-1])}": {**chosen[-1], "layers": f"block{depth}.mlp"},
        "all MLPs, sequence_settings": {**recommended, "layers": ALL},
    }


def _words(settings: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("transformer", __doc__)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--time", type=int, default=256, help="positions of a sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flops-only", action="store_true", help="compile, and run nothing")
    parser.add_argument("--defaults", action="store_true", help="also time the defaults, which takes minutes")
    options = parser.parse_args(arguments)
    set_lapack_threads(1)
    conditions, log = Conditions(), ProgressLog()
    sizes = {"width": options.width, "heads": max(options.width // 64, 1), "depth": options.depth}
    make = partial(plastax.models.Transformer, 256, options.time, **sizes)
    model = eqx.filter_eval_shape(make, key=jax.random.key(0))
    params, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    tokens = jax.ShapeDtypeStruct((options.sequences, options.time), jnp.int32)
    step, added, state = _programs(static, params)
    shares = {name: partial(step, **chosen) for name, chosen in losses().items()}
    intervals, programs = {}, {}
    for name, function in {STEP: step, **shares}.items():
        log(f"compiling {name}")
        programs[name] = jax.jit(function).lower(params, state, tokens, jax.random.key(0)).compile()
    for name, chosen in transforms(options.depth, options.sequences).items():
        log(f"compiling {name}")
        intervals[name] = chosen.pop("interval", 1)
        programs[name] = jax.jit(partial(added, **chosen)).lower(params, tokens).compile()
    typical: dict[str, float] = {}
    if not options.flops_only:
        values = eqx.filter(make(key=jax.random.key(0)), eqx.is_inexact_array)
        drawn = jax.random.randint(jax.random.key(1), tokens.shape, 0, 256)
        started = optax.adam(1e-3).init(values)
        calls = {
            name: partial(program, values, drawn)
            if name in intervals
            else partial(program, values, started, drawn, jax.random.key(2))
            for name, program in programs.items()
            if name != DEFAULTS or options.defaults
        }
        typical = medians(interleaved(calls, rounds=options.rounds))
    operations = {name: float(program.cost_analysis()["flops"]) for name, program in programs.items()}

    def share(cost: dict[str, float], name: str) -> float:
        own = cost[name] - cost[STEP] if name in shares else cost[name] / intervals.get(name, 1)
        return 100 * own / cost[STEP]

    rows = []
    for name, program in programs.items():
        planned = program.memory_analysis()
        assert planned is not None
        row = {
            "program": name,
            "Gflop": 1e-9 * operations[name],
            "% of a step's": share(operations, name),
            "MB": 1e-6 * planned.temp_size_in_bytes,
        }
        if typical:
            timed = name in typical
            row["seconds"] = typical[name] if timed else None
            row["% of a step's time"] = share(typical, name) if timed else None
        rows.append(row)
    sizes = f"width {options.width}, {options.depth} blocks, {options.sequences} x {options.time} tokens"
    show(f"Effective rank in the training of a transformer ({sizes})", rows, conditions, as_json=options.json)


def _programs(static: Any, like: Any) -> tuple[Callable, Callable, Any]:
    """A training step, what `plastax.add_effective_rank` adds to its gradient, and the shapes of Adam's state.

    The settings of a step are those of the effective-rank loss in it; without any it is the plain one.
    """
    adam = optax.adam(1e-3)

    def loss(params, tokens, key, settings):
        logits, features, _ = eqx.combine(params, static)(tokens)
        targets = jnp.roll(tokens, -1, axis=1)
        task = optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()
        return task + 1e-2 * plastax.effective_rank_loss(features, key=key, **settings) if settings else task

    def step(params, state, tokens, key, **settings):
        updates, state = adam.update(jax.grad(loss)(params, tokens, key, settings), state)
        return optax.apply_updates(params, updates), state

    def added(params, tokens, **chosen):
        transform = plastax.add_effective_rank(lambda p, x: eqx.combine(p, static)(x)[1], 1.0, **chosen)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
        return transform.update(zeros, transform.init(params), params, inputs=tokens)[0]

    return step, added, jax.eval_shape(adam.init, like)


if __name__ == "__main__":
    main()
