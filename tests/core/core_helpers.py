"""What several tests of core share: cheap models, a small network with resettable units, a walk through a program."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import plastax


def quick_jit(function):
    """`jax.jit` without LLVM's optimizations: the programs of the tests run for less time than they compile."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def quick_key(seed):
    """A key whose random numbers compile much faster than threefry's."""
    return jax.random.key(seed, impl="rbg")


def random_model(make, seed=0):
    """The model `make(key)` with weights from numpy, its biases and scales not zero and one (that hides mistakes)."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        values = rng.normal(size=leaf.shape)
        if leaf.ndim > 1:
            values *= np.sqrt(2 / np.prod(leaf.shape[:-1]))
        else:
            values = 0.2 * values + (1 if jax.tree_util.keystr(path).endswith("scale") else 0)
        return jnp.asarray(values.astype(np.float32))

    return jax.tree_util.tree_map_with_path(draw, eqx.filter_eval_shape(make, jax.random.key(0)))


def random_batch(shape, seed=100):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def primitives(jaxpr, inside=False):
    """(name, inside a cond?, shape of its first operand) of all equations."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name, inside, equation.invars[0].aval.shape if equation.invars else None
        for value in equation.params.values():
            for sub in value if isinstance(value, tuple | list) else [value]:
                sub = getattr(sub, "jaxpr", sub)
                if hasattr(sub, "eqns"):
                    yield from primitives(sub, inside or equation.primitive.name == "cond")


# A small network and its units, for the tests of continual backprop.
SIZES = (3, 8, 6, 2)


def make_units(first="h1", second="h2"):
    """The two hidden layers of a network with kernels [in, out] in a dictionary."""
    return [
        plastax.Units(
            features=name,
            incoming=(
                plastax.Incoming(lambda p, i=i: p[f"w{i}"], axis=1),
                plastax.Incoming(lambda p, i=i: p[f"b{i}"], axis=0, fill=0.0),
            ),
            outgoing=(plastax.Outgoing(lambda p, i=i: p[f"w{i + 1}"], axis=0, bias=lambda p, i=i: p[f"b{i + 1}"]),),
        )
        for i, name in ((1, first), (2, second))
    ]


def normal(seed, shape, dtype=jnp.float32):
    # From numpy, since every shape drawn by jax is a compilation.
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def make_params(seed=0, sizes=SIZES, dtype=jnp.float32):
    params = {}
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes), start=1):
        params[f"w{i}"] = normal([seed, i, 0], (fan_in, fan_out), dtype) * 0.7
        params[f"b{i}"] = normal([seed, i, 1], fan_out, dtype) * 0.1
    return params


def apply(params, x):
    h1 = jax.nn.relu(x @ params["w1"] + params["b1"])
    h2 = jax.nn.relu(h1 @ params["w2"] + params["b2"])
    return h2 @ params["w3"] + params["b3"], {"h1": h1, "h2": h2}


def loss(params, x, y):
    output, features = apply(params, x)
    return 0.5 * jnp.mean(jnp.sum((output - y) ** 2, axis=-1)), features


def waves(key, shape, dtype=jnp.float32):
    """New kernels that the reference can draw too."""
    return (0.5 * jnp.cos(jnp.arange(1.0, 1.0 + np.prod(shape)))).reshape(shape).astype(dtype)


def make_data(steps, seed=5):
    x = normal(seed, (steps, 4, SIZES[0]))
    return x, jnp.stack([jnp.sin(x[..., 0]), x[..., 1] * x[..., 2]], axis=-1)


def train(optimizer, params, data):
    def step(carry, batch):
        params, state = carry
        grads, features = jax.grad(loss, has_aux=True)(params, *batch)
        updates, state = optimizer.update(grads, state, params, features=features)
        return (optax.apply_updates(params, updates), state), [layer.age == 0 for layer in state.layers]

    return jax.lax.scan(step, (params, optimizer.init(params)), data)
