"""What L2-ER adds to a training step of a transformer.

Run with `plastax bench transformer`. For several settings: operations of the effective-rank gradient by the compiler,
which does not count decompositions, and its time, both divided by the interval and as a share of a plain training step
with Adam; and the memory that the compiler plans for it.
"""

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


def settings(depth: int, sequences: int) -> dict[str, dict[str, Any]]:
    """Settings of L2-ER by name, from the plain ones to the cheap ones."""
    some = max(sequences // 8, 1)
    cheap = {"samples": some, "rows": 1024, "sketch": 256}
    return {
        "all MLPs, rows=1024": {"rows": 1024, "interval": 1, "layers": "block*.mlp"},
        "all MLPs, rows=1024, interval=10": {"rows": 1024, "interval": 10, "layers": "block*.mlp"},
        f"all MLPs, samples={some}, rows=1024, interval=10": {
            "samples": some,
            "rows": 1024,
            "interval": 10,
            "layers": "block*.mlp",
        },
        f"all MLPs, samples={some}, rows=1024, sketch=256, interval=10": {
            **cheap,
            "interval": 10,
            "layers": "block*.mlp",
        },
        f"last MLP, samples={some}, rows=1024, sketch=256, interval=10": {
            **cheap,
            "interval": 10,
            "layers": f"block{depth}.mlp",
        },
    }


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("transformer", __doc__)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--time", type=int, default=256, help="positions of a sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flops-only", action="store_true", help="compile, and run nothing")
    options = parser.parse_args(arguments)
    set_lapack_threads(1)
    conditions, log = Conditions(), ProgressLog()
    sizes = {"width": options.width, "heads": max(options.width // 64, 1), "depth": options.depth}
    make = partial(plastax.models.Transformer, 256, options.time, **sizes)
    model = eqx.filter_eval_shape(make, key=jax.random.key(0))
    params, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    tokens = jax.ShapeDtypeStruct((options.sequences, options.time), jnp.int32)
    adam = optax.adam(1e-3)

    def loss(params, tokens):
        logits, _, _ = eqx.combine(params, static)(tokens)
        targets = jnp.roll(tokens, -1, axis=1)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    def step(params, state, tokens):
        updates, state = adam.update(jax.grad(loss)(params, tokens), state)
        return optax.apply_updates(params, updates), state

    def added(params, tokens, **chosen):
        transform = plastax.add_effective_rank(lambda p, x: eqx.combine(p, static)(x)[1], 1.0, **chosen)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
        return transform.update(zeros, transform.init(params), params, inputs=tokens)[0]

    state = jax.eval_shape(adam.init, params)
    log("compiling the training step")
    programs = {"step": jax.jit(step).lower(params, state, tokens).compile()}
    intervals = {}
    for name, chosen in settings(options.depth, options.sequences).items():
        log(f"compiling {name}")
        chosen = dict(chosen)
        intervals[name] = chosen.pop("interval")
        programs[name] = jax.jit(partial(added, **chosen)).lower(params, tokens).compile()
    typical: dict[str, float] = {}
    if not options.flops_only:
        values = eqx.filter(make(key=jax.random.key(0)), eqx.is_inexact_array)
        drawn = jax.random.randint(jax.random.key(1), tokens.shape, 0, 256)
        started = adam.init(values)
        calls = {name: partial(program, values, drawn) for name, program in programs.items() if name != "step"}
        seconds = interleaved(
            {"step": partial(programs["step"], values, started, drawn), **calls}, rounds=options.rounds
        )
        typical = medians(seconds)
    of_step, rows = _operations(programs["step"]), []
    for name, program in programs.items():
        planned = program.memory_analysis()
        assert planned is not None
        every = intervals.get(name, 1)
        row = {
            "program": "a training step" if name == "step" else name,
            "Gflop": 1e-9 * _operations(program),
            "% of a step's": 100 * _operations(program) / of_step / every,
            "MB": 1e-6 * planned.temp_size_in_bytes,
        }
        if typical:
            row |= {"seconds": typical[name], "% of a step's time": 100 * typical[name] / typical["step"] / every}
        rows.append(row)
    sizes = f"width {options.width}, {options.depth} blocks, {options.sequences} x {options.time} tokens"
    show(f"The effective-rank gradient of a transformer ({sizes})", rows, conditions, as_json=options.json)


def _operations(program) -> float:
    return float(program.cost_analysis()["flops"])


if __name__ == "__main__":
    main()
