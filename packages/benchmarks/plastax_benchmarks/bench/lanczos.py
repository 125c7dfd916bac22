"""The speed of Lanczos: `plastax bench lanczos`.

Order 90 on the Hessian of a 784-100-100-10 network over 2000 samples, against matfree with full reorthogonalization and
against eager loops around a jitted Hessian-vector product. All run in one process, interleaved.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import plastax_diagnostics as diagnostics
from plastax_kernels import mlp_hvp

from .output import Conditions, show
from .parser import bench_parser
from .timing import Ratio, interleaved, medians, ratio


WIDTHS = (784, 100, 100, 10)


def network(key, widths=WIDTHS):
    """He-normal kernels and zero biases, as a list of (kernel, bias)."""
    keys = jax.random.split(key, len(widths))
    return [
        (jax.random.normal(key, (a, b)) * np.float32(np.sqrt(2 / a)), jnp.zeros(b))
        for key, a, b in zip(keys, widths, widths[1:], strict=False)
    ]


def logits(params, inputs):
    """A dense ReLU network."""
    *hidden, (kernel, bias) = params
    for w, b in hidden:
        inputs = jax.nn.relu(inputs @ w + b)
    return inputs @ kernel + bias


def loss(params, data):
    """Softmax cross-entropy, the mean over samples."""
    inputs, targets = data
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits(params, inputs)), targets[:, None], axis=1))


def hvp(params, data, vector):
    """The usual forward-over-reverse product."""
    return jax.jvp(lambda params: jax.grad(loss)(params, data), (params,), (vector,))[1]


def matfree_lanczos(params, data, order):
    """Lanczos of matfree, compiled once, with all data as arguments."""
    try:
        import matfree.decomp
    except ImportError as error:
        raise SystemExit("this comparison needs matfree: pip install 'plastax[benchmarks]'") from error

    _, unravel = ravel_pytree(params)
    decompose = matfree.decomp.tridiag_sym(order, reortho="full", materialize=False)

    @jax.jit
    def run(start, params, data):
        def product(flat, params, data):
            return ravel_pytree(hvp(params, data, unravel(flat)))[0]

        return decompose(product, start, params, data).J_small

    return run


def eager_lanczos(params, data, order, *, one_by_one):
    """An eager loop around a jitted product, with one full Gram-Schmidt pass.

    `one_by_one` subtracts earlier vectors one after the other, as in the paper's released code; otherwise two matrix
    products do.
    """
    _, unravel = ravel_pytree(params)
    product = jax.jit(lambda params, data, flat: ravel_pytree(hvp(params, data, unravel(flat)))[0])

    def run(start):
        vector = start / jnp.linalg.norm(start)
        basis = jnp.zeros((order, start.size), start.dtype)
        diagonal, off_diagonal = [], []
        for step in range(order):
            basis = basis.at[step].set(vector)
            rest = product(params, data, vector)
            diagonal.append(jnp.dot(rest, vector))
            if one_by_one:
                for earlier in range(step + 1):
                    rest = rest - jnp.dot(rest, basis[earlier]) * basis[earlier]
            else:
                rest = rest - (basis @ rest) @ basis
            off_diagonal.append(jnp.linalg.norm(rest))
            vector = rest / off_diagonal[-1]
        return jnp.stack(diagonal), jnp.stack(off_diagonal)

    return run


def repeated_products(times):
    """Programs that compute several products in a row, as Lanczos does. Each gets the result of the last one."""

    def chain(product, vector):
        def body(_, vector):
            length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(vector)))
            return product(jax.tree.map(lambda leaf: leaf / length, vector))

        return jax.lax.fori_loop(0, times, body, vector)

    def plain(params, data, vector):
        return chain(lambda vector: hvp(params, data, vector), vector)

    def linearized(params, data, vector):
        _, product = jax.linearize(lambda params: jax.grad(loss)(params, data), params)
        return chain(product, vector)

    def kernel(params, data, vectors):
        return chain(lambda vectors: mlp_hvp(params, data, vectors), vectors)

    def gradients(params, data, vector):
        del vector
        return chain(lambda params: jax.grad(loss)(params, data), params)

    return {name.__name__: jax.jit(name) for name in (plain, linearized, kernel, gradients)}


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("lanczos", __doc__)
    parser.add_argument("--order", type=int, default=90)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--products", type=int, default=20, help="products in a row where these are timed")
    options = parser.parse_args(arguments)
    order = options.order
    keys = jax.random.split(jax.random.key(0), 4)
    params = network(keys[0])
    data = (
        jax.random.uniform(keys[1], (options.samples, WIDTHS[0])),
        jax.random.randint(keys[2], (options.samples,), 0, WIDTHS[-1]),
    )
    flat, unravel = ravel_pytree(params)
    start = jax.random.normal(keys[3], flat.shape)
    operator = diagnostics.hessian(loss, params, data)
    theirs = matfree_lanczos(params, data, order)
    products = repeated_products(options.products)
    vector = unravel(start)
    one, four = (jax.tree.map(lambda leaf, k=k: jnp.stack(k * [leaf]), vector) for k in (1, 4))
    eager = {name: eager_lanczos(params, data, order, one_by_one=name == "eager, vector by vector") for name in EAGER}
    conditions = Conditions()
    seconds = interleaved(
        {
            "plastax": lambda: diagnostics.lanczos(operator, unravel(start), order).diagonal,
            "matfree, full": lambda: theirs(start, params, data),
            **{name: lambda run=run: run(start) for name, run in eager.items()},
            "gradients": lambda: products["gradients"](params, data, vector),
            "plain": lambda: products["plain"](params, data, vector),
            "linearized": lambda: products["linearized"](params, data, vector),
            "mlp_hvp": lambda: products["kernel"](params, data, one),
            "mlp_hvp x 4": lambda: products["kernel"](params, data, four),
        },
        rounds=options.rounds,
    )
    typical = medians(seconds)
    rows = []
    for name in ("plastax", "matfree, full", *EAGER):
        gradients = _scaled(ratio(seconds, name, "gradients"), options.products / order)
        rows.append(
            {
                "one step or product": f"step: {name}",
                "ms": 1e3 * typical[name] / order,
                "gradients": gradients,
                "x plastax": ratio(seconds, name, "plastax"),
            }
        )
    for name, per in (("gradients", 1), ("plain", 1), ("linearized", 1), ("mlp_hvp", 1), ("mlp_hvp x 4", 4)):
        gradients = _scaled(ratio(seconds, name, "gradients"), 1 / per)
        milliseconds = 1e3 * typical[name] / options.products / per
        rows.append({"one step or product": f"product: {name}", "ms": milliseconds, "gradients": gradients})
    title = f"Lanczos of order {order}, {flat.size:,} parameters, {options.samples} samples, {options.rounds} rounds"
    show(title, rows, conditions, as_json=options.json, packages=("jax", "jaxlib", "matfree"))


def _scaled(found: Ratio, factor: float) -> Ratio:
    return Ratio(*(factor * number for number in found))


EAGER = ("eager, vector by vector", "eager, matrix products")

if __name__ == "__main__":
    main()
