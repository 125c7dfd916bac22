"""Lanczos: reduces an operator and a starting vector to a small tridiagonal matrix."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._operators.base import CurvatureOperator, check_vector, one_by_one
from .._operators.precision import in_trace, is_traced, precision
from .._operators.samples import replicate
from .quadrature import Tridiagonal


Progress = Callable[[int, int], Any]
"""Called with the number of finished steps and the total number of steps."""

GUARD = 64
"""A new direction shorter than this many roundings of the operator's scale is noise: the Krylov space is exhausted."""


class Coefficients(NamedTuple):
    """What a Lanczos run leaves on the device, besides its basis."""

    diagonal: Float[Array, " order"]
    off_diagonal: Float[Array, " order"]
    scale: Float[Array, ""]
    asymmetry: Float[Array, ""]
    steps: Int[Array, ""]
    active: Bool[Array, ""]


class _Probe(NamedTuple):
    basis: Float[Array, "order size"]
    vector: Float[Array, " size"]
    diagonal: Float[Array, " order"]
    off_diagonal: Float[Array, " order"]
    scale: Float[Array, ""]
    asymmetry: Float[Array, ""]
    steps: Int[Array, ""]
    active: Bool[Array, ""]


def lanczos(
    operator: lx.AbstractLinearOperator, start: PyTree, order: int, *, progress: Progress | None = None
) -> Tridiagonal:
    """The spectral measure of a symmetric operator at one vector, as a quadrature with `order` nodes.

    Every new vector is made orthogonal to all earlier ones: by the three-term recurrence, then by a full Gram-Schmidt
    pass (two matrix products with the stored basis), then by a second one unless the first has removed next to nothing.
    A new vector that is shorter than about 64 roundings of the operator's scale ends the run: on a collapsed
    network, the steps that would follow are noise.

    !!! example

        ```python
        import jax.numpy as jnp
        import lineax as lx
        import plastax_diagnostics as diagnostics

        operator = lx.DiagonalLinearOperator(jnp.array([0.0, 1.0, 1.0, 3.0]))
        nodes, weights = diagnostics.lanczos(operator, jnp.ones(4), 4).quadrature()
        nodes  # 0, 1, 3
        weights  # 1/4, 1/2, 1/4
        ```

    **Arguments:**

    - `operator`: symmetric, of lineax or of this package. Symmetry is checked during the run, at no cost.
    - `start`: a vector of the structure `operator.in_structure()`, of nonzero length.
    - `order`: the number of products to make, at most the size of the operator.
    - `progress`: a function `(done, total)`, called about 20 times during the run.

    **Returns:**

    A [`plastax_diagnostics.Tridiagonal`][], on the host and in float64.
    """
    check_operator(operator)
    check_vector(start, operator.in_structure())
    if not 1 <= order <= operator.in_size():
        raise ValueError(f"`order` must lie between 1 and the size of the operator, {operator.in_size()}, got {order}")
    with precision(_dtype(operator), operator, start):
        flat, _ = ravel_pytree(start)
        (result,) = tridiagonalize(operator, [flat], order, progress)
    return result


def check_operator(operator: lx.AbstractLinearOperator) -> None:
    """Raises unless an operator maps a non-empty space of one real dtype to itself."""
    if in_trace() or any(map(is_traced, jax.tree.leaves(operator))):
        raise ValueError(
            "the operator holds traced values, or is used in a function that is being traced: spectra are made on the "
            "host, so call `spectrum`, `exact_spectrum` and `lanczos` outside of jax.jit, jax.vmap and jax.grad"
        )
    ins, outs = operator.in_structure(), operator.out_structure()
    if eqx.tree_equal(ins, outs) is not True:
        raise ValueError(f"the operator must map a space to itself, got {ins} -> {outs}")
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(ins)}
    if operator.in_size() == 0 or len(dtypes) != 1 or not jnp.issubdtype(next(iter(dtypes)), jnp.floating):
        raise ValueError(f"the operator must act on real vectors of one dtype with at least one entry, got {ins}")


def tridiagonalize(
    operator: lx.AbstractLinearOperator, starts: Sequence[Array], order: int, progress: Progress | None = None
) -> list[Tridiagonal]:
    """Lanczos from several flat vectors at once, sharing each evaluation of the operator."""
    mesh = getattr(getattr(operator, "samples", None), "mesh", None)
    begun = [_begin(start, order) for start in starts]
    lengths = [float(length) for _, length in begun]
    if not all(np.isfinite(length) and length > 0 for length in lengths):
        raise ValueError(f"Lanczos needs starting vectors of positive, finite length, got lengths {lengths}")
    probes = replicate([probe for probe, _ in begun], mesh)
    stride = order if progress is None else max(1, order // 20)
    for stop in range(stride, order + stride, stride):
        probes = _advance((operator, jnp.asarray(min(stop, order), jnp.int32)), probes)
        if progress is not None:
            progress(int(max(probe.steps for probe in probes)), order)
        if not any(bool(probe.active) for probe in probes):
            break
    size, dtype = operator.in_size(), _dtype(operator)
    return [finish(_coefficients(probe), size, dtype, length) for probe, length in zip(probes, lengths, strict=True)]


def traced_coefficients(
    operator: lx.AbstractLinearOperator, starts: Sequence[Array], order: int
) -> tuple[Coefficients, ...]:
    """The same as a traceable function, for use inside a program. `finish` makes each result a `Tridiagonal`."""
    probes = _run(operator, [_begin(start, order)[0] for start in starts], jnp.asarray(order, jnp.int32))
    return tuple(map(_coefficients, probes))


def _coefficients(probe: _Probe) -> Coefficients:
    return Coefficients(*(getattr(probe, name) for name in Coefficients._fields))


@partial(jax.jit, static_argnums=1)
def _begin(start: Float[Array, " size"], order: int) -> tuple[_Probe, Float[Array, ""]]:
    """A probe before its first step, and the length of its starting vector."""
    length = jnp.linalg.norm(start)
    vector = start / length
    # Every array is a separate one, since all of them are donated to the program.
    probe = _Probe(
        basis=jnp.zeros((order, vector.size), vector.dtype),
        vector=vector,
        diagonal=jnp.zeros(order, vector.dtype),
        off_diagonal=jnp.zeros(order, vector.dtype),
        scale=jnp.zeros((), vector.dtype),
        asymmetry=jnp.zeros((), vector.dtype),
        steps=jnp.zeros((), jnp.int32),
        active=jnp.ones((), bool),
    )
    return probe, length


@eqx.filter_jit(donate="all-except-first")
def _advance(operator_and_stop, probes):
    # The last step is an argument of the program, so that progress reports do not compile it again.
    operator, stop = operator_and_stop
    return _run(operator, probes, stop)


def _run(operator, probes: list[_Probe], stop: Int[Array, ""]) -> list[_Probe]:
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), operator.in_structure()))

    multiply = operator.multiplier() if isinstance(operator, CurvatureOperator) else one_by_one(operator.mv)

    def products(vectors):
        images = multiply(jax.vmap(unravel)(jnp.stack(vectors)))
        return list(jax.vmap(lambda image: ravel_pytree(image)[0])(images))

    def body(probes):
        images = products([probe.vector for probe in probes])
        return [_step(probe, image) for probe, image in zip(probes, images, strict=True)]

    def unfinished(probes):
        return jnp.any(jnp.stack([probe.active & (probe.steps < stop) for probe in probes]))

    return jax.lax.while_loop(unfinished, body, probes)


def _step(probe: _Probe, image: Float[Array, " size"]) -> _Probe:
    step, vector = probe.steps, probe.vector
    # A finished probe has the vector zero and rewrites the row after its last step unchanged.
    basis = jnp.where(probe.active, vector, probe.basis[step])
    basis = probe.basis.at[step].set(basis)
    diagonal = jnp.dot(vector, image)
    # In the first step this reads the last row and coefficient, which are still zero.
    rest = image - diagonal * vector - probe.off_diagonal[step - 1] * basis[step - 1]
    before = jnp.linalg.norm(rest)
    found = basis @ rest
    rest = rest - found @ basis
    # "Twice is enough", and once is enough when little was removed.
    rest = jax.lax.cond(
        jnp.linalg.norm(rest) < 0.7 * before, lambda rest: rest - (basis @ rest) @ basis, lambda rest: rest, rest
    )
    length = jnp.linalg.norm(rest)
    scale = jnp.maximum(probe.scale, jnp.abs(diagonal) + length)
    finite = jnp.isfinite(diagonal) & jnp.isfinite(length)
    exhausted = length <= GUARD * jnp.finfo(image.dtype).eps * scale
    active = probe.active & finite & ~exhausted
    # For a symmetric operator, what the recurrence leaves along earlier vectors is rounding.
    asymmetry = jnp.maximum(probe.asymmetry, jnp.max(jnp.abs(found)))
    after = _Probe(
        basis=basis,
        vector=jnp.where(active, rest / jnp.where(exhausted, 1.0, length), 0.0),
        diagonal=probe.diagonal.at[step].set(diagonal),
        off_diagonal=probe.off_diagonal.at[step].set(length),
        scale=scale,
        asymmetry=asymmetry,
        steps=step + 1,
        active=active,
    )
    return after._replace(
        **{
            name: jnp.where(probe.active, getattr(after, name), getattr(probe, name))
            for name in after._fields
            if name not in ("basis", "vector")
        }
    )


def finish(found: Coefficients, size: int, dtype: Any, length: float) -> Tridiagonal:
    """The tridiagonal matrix on the host, of an operator of that size and dtype. Raises unless it can be trusted."""
    steps = int(found.steps)
    diagonal = np.asarray(found.diagonal, np.float64)[:steps]
    off_diagonal = np.asarray(found.off_diagonal, np.float64)[:steps]
    if not (np.isfinite(diagonal).all() and np.isfinite(off_diagonal).all()):
        raise FloatingPointError(
            f"the operator gave NaN or infinity at step {steps} of Lanczos: "
            "check the loss and its gradient at these parameters"
        )
    eps = float(jnp.finfo(dtype).eps)
    scale = float(found.scale)
    if float(found.asymmetry) > eps**0.3 * scale:
        raise ValueError(
            "the operator is not symmetric: Lanczos met a component of "
            f"{float(found.asymmetry) / scale:.2g} of its scale where a symmetric operator has none"
        )
    complete = not bool(found.active) or steps == size
    return Tridiagonal(diagonal, off_diagonal[:-1], 0.0 if complete else float(off_diagonal[-1]), length)


def _dtype(operator) -> np.dtype:
    return jax.tree.leaves(operator.in_structure())[0].dtype
