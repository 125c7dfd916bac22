"""Memory of a Hessian-vector product of ResNet-18: `plastax bench resnet-hvp`.

Prints the compiler's own figures for temporary memory, for 2000 samples in chunks of 100. `--run` also
runs Lanczos of order 3 on 200 samples.
"""

import time

import equinox as eqx
import jax

import plastax_diagnostics as diagnostics
from plastax import models

from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog


def resnet_hessian(samples, chunk, convolution, key):
    """The Hessian of ResNet-18 on random images in the shape of CIFAR-100."""
    keys = jax.random.split(key, 3)
    model = models.ResNet18(100, convolution=convolution, key=keys[0])
    params, static = eqx.partition(model, eqx.is_inexact_array)
    loss = diagnostics.task_loss(diagnostics.apply_model(static, model.init_state()), "cross_entropy")
    images = jax.random.uniform(keys[1], (samples, 32, 32, 3))
    labels = jax.random.randint(keys[2], (samples,), 0, 100)
    return diagnostics.hessian(loss, params, diagnostics.Samples((images, labels), chunk=chunk))


def temporary_bytes(operator):
    """Peak temporary memory of one product, as the compiler reports it."""
    program = eqx.filter_jit(lambda operator, vector: operator.mv(vector))
    lowered = program.lower(operator, operator.params)  # pyright: ignore[reportFunctionMemberAccess]
    return lowered.compile().compiled.memory_analysis().temp_size_in_bytes


def main(arguments: list[str] | None = None) -> None:
    """Prints memory, and with `--run` the spectrum."""
    parser = bench_parser("resnet-hvp", __doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=100, help="0 for all samples at once")
    parser.add_argument(
        "--convolution",
        choices=["auto", "cpu", "patches", "xla"],
        default="auto",
        help="patches times a matrix need more memory; xla is slow inside loops on CPU",
    )
    parser.add_argument("--run", action="store_true", help="also run Lanczos of order 3 on 200 samples")
    options = parser.parse_args(arguments)
    conditions, key = Conditions(), jax.random.key(0)
    operator = resnet_hessian(options.samples, options.chunk or None, options.convolution, key)
    begin = time.perf_counter()
    row = {
        "convolutions": options.convolution,
        "parameters": operator.in_size(),
        "samples": options.samples,
        "chunk": options.chunk or options.samples,
        "temporary GiB": temporary_bytes(operator) / 2**30,
        "compiled in s": time.perf_counter() - begin,
    }
    if options.run:
        operator = resnet_hessian(200, options.chunk or None, options.convolution, key)
        begin, log = time.perf_counter(), ProgressLog(0.0)
        found = diagnostics.spectrum(
            operator, jax.random.key(1), order=3, progress=lambda done, total: log(f"step {done} of {total}")
        )
        row |= {
            "order 3 on 200 samples, s": time.perf_counter() - begin,
            "nodes": ", ".join(f"{node:.4g}" for node in found.nodes[0]),
        }
    show("A Hessian-vector product of ResNet-18", [row], conditions, as_json=options.json)


if __name__ == "__main__":
    main()
