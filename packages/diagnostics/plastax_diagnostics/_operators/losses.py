"""Losses on outputs, with their curvature and its square root."""

import abc
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PyTree

from .applicable import NotApplicableError
from .function import as_function, check_model
from .precision import is_traced


Outputs = Float[Array, "samples *positions outputs"]
Targets = Num[Array, "samples *shape"]
LossLike = str | Callable
"""`"cross_entropy"`, `"squared_error"`, or a function of (outputs, targets) that is a mean over samples."""

ROOT_BYTES = 2**31
"""The largest size of the stored roots of the curvature of a general loss."""


class OutputLoss(eqx.Module):
    """A loss of each sample's outputs. Curvature, root and gradient are those of single samples, not of their mean."""

    is_mean = True
    """Whether the value is known to be a mean over samples."""

    @abc.abstractmethod
    def value(self, outputs: Outputs, targets: Targets) -> Float[Array, ""]:
        """The mean over samples."""

    @abc.abstractmethod
    def curvature(self, outputs: Outputs, targets: Targets, vectors: Outputs) -> Outputs:
        """The product C v, with C the Hessian of a sample's loss with respect to its outputs."""

    @abc.abstractmethod
    def root(self, outputs: Outputs, targets: Targets, vectors: Outputs) -> Outputs:
        """The product B v, with B B^T = C."""

    @abc.abstractmethod
    def root_transpose(self, outputs: Outputs, targets: Targets, vectors: Outputs) -> Outputs:
        """The product B^T v."""

    def roots(
        self, outputs: Outputs, targets: Targets
    ) -> Float[Array | np.ndarray, "samples *positions outputs outputs"]:
        """The matrix B of every sample, or of every position of it; for a general loss, of all positions together."""
        unit = jnp.eye(outputs.shape[-1], dtype=outputs.dtype)
        columns = jax.vmap(lambda column: self.root(outputs, targets, jnp.broadcast_to(column, outputs.shape)))(unit)
        return jnp.moveaxis(columns, 0, -1)

    def gradient(self, outputs: Outputs, targets: Targets) -> Outputs:
        """The gradient of a sample's loss with respect to its outputs."""
        return outputs.shape[0] * jax.grad(self.value)(outputs, targets)

    def check(self, outputs: jax.ShapeDtypeStruct, targets: Targets) -> None:
        """Raises when targets do not fit the outputs. Values are checked only outside of traced programs."""
        return None


class CrossEntropy(OutputLoss):
    """Softmax cross-entropy of logits, a mean over samples and positions. Targets are classes or probabilities.

    With q = sqrt(p), the curvature diag(p) - p p^T is B B^T for B = diag(q) (I - q q^T). It is singular (adding a
    constant to all logits changes nothing), so a Cholesky factor does not work.
    """

    def value(self, outputs, targets):
        log_p = jax.nn.log_softmax(outputs)
        return -jnp.mean(jnp.sum(self.one_hot(outputs, targets) * log_p, axis=-1))

    def curvature(self, outputs, targets, vectors):
        p = jax.nn.softmax(outputs)
        return p * (vectors - _inner(p, vectors)) / _positions(outputs)

    def root(self, outputs, targets, vectors):
        q = self.root_probabilities(outputs)
        return q * (vectors - q * _inner(q, vectors)) / math.sqrt(_positions(outputs))

    def root_transpose(self, outputs, targets, vectors):
        q = self.root_probabilities(outputs)
        scaled = q * vectors
        return (scaled - q * _inner(q, scaled)) / math.sqrt(_positions(outputs))

    def gradient(self, outputs, targets):
        return (jax.nn.softmax(outputs) - self.one_hot(outputs, targets)) / _positions(outputs)

    def residual(self, outputs, targets):
        """The residual e = (p - y) / sqrt(p), with B e = p - y. Infinite only if a target class has probability 0."""
        log_q = jax.nn.log_softmax(outputs) / 2
        y = self.one_hot(outputs, targets)
        wanted = y > 0
        residual = jnp.exp(log_q) - jnp.where(wanted, y * jnp.exp(-jnp.where(wanted, log_q, 0.0)), 0.0)
        return residual / math.sqrt(_positions(outputs))

    @staticmethod
    def root_probabilities(outputs):
        return jnp.exp(jax.nn.log_softmax(outputs) / 2)

    @staticmethod
    def one_hot(outputs, targets):
        if targets.ndim == outputs.ndim:
            return targets.astype(outputs.dtype)
        return jax.nn.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype)

    def check(self, outputs, targets):
        classes, positions = outputs.shape[-1], outputs.shape[1:-1]
        indices = targets.shape[1:] == positions and jnp.issubdtype(targets.dtype, jnp.integer)
        if not indices and targets.shape[1:] != outputs.shape[1:]:
            before = ", ".join(("samples", *map(str, positions)))
            raise ValueError(
                f"cross-entropy over {classes} classes needs integer targets [{before}] or probabilities "
                f"[{before}, {classes}], got {targets.dtype} of shape {targets.shape}"
            )
        if is_traced(targets):
            return
        values = np.asarray(targets)
        if indices and (values.min() < 0 or values.max() >= classes):
            raise ValueError(f"targets must lie in 0..{classes - 1}, got {values.min()}..{values.max()}")
        if not indices and not np.allclose(values.sum(axis=-1), 1.0, atol=1e-3):
            raise ValueError("the probabilities of every target must add up to 1")


def _inner(weights, vectors):
    # A contraction, not a sum of products: XLA's CPU compiler (jaxlib 0.10.2) fuses the latter wrongly when probes are
    # vmapped over shared outputs of a thousand samples and more, and all but the first are wrong.
    return jnp.einsum("...o,...o->...", weights, vectors)[..., None]


def _positions(outputs) -> int:
    """The number of positions of a sequence or an image in a sample: its loss is the mean over them."""
    return math.prod(outputs.shape[1:-1])


class SquaredError(OutputLoss):
    """Half the squared distance between outputs and targets, added up over outputs; a mean over positions."""

    def value(self, outputs, targets):
        return jnp.mean(jnp.sum((outputs - targets.astype(outputs.dtype)) ** 2, axis=-1)) / 2

    def curvature(self, outputs, targets, vectors):
        return vectors / _positions(outputs)

    def root(self, outputs, targets, vectors):
        return vectors / math.sqrt(_positions(outputs))

    root_transpose = root

    def gradient(self, outputs, targets):
        return (outputs - targets.astype(outputs.dtype)) / _positions(outputs)

    def residual(self, outputs, targets):
        """The residual f - y, divided by the square root of the number of positions."""
        return (outputs - targets.astype(outputs.dtype)) / math.sqrt(_positions(outputs))

    def check(self, outputs, targets):
        if targets.shape[1:] != outputs.shape[1:]:
            raise ValueError(
                f"squared error needs targets of the shape of the outputs, [samples, {outputs.shape[-1]}], "
                f"got {targets.shape}"
            )


class OutputsAlone(SquaredError):
    """A placeholder whose curvature is the identity, also where samples have positions."""

    def curvature(self, outputs, targets, vectors):
        return vectors

    def root(self, outputs, targets, vectors):
        return vectors

    root_transpose = root


class MeanLoss(OutputLoss):
    """Any function of (outputs, targets) that is a mean over samples, with curvature from autodiff."""

    function: Callable

    is_mean = False

    def value(self, outputs, targets):
        return self.function(outputs, targets)

    def curvature(self, outputs, targets, vectors):
        # The Hessian of a mean over samples is block-diagonal: one product gives those of all samples.
        gradient = jax.grad(lambda outputs: self.function(outputs, targets))
        return outputs.shape[0] * jax.jvp(gradient, (outputs,), (vectors,))[1]

    def root(self, outputs, targets, vectors):
        raise NotImplementedError("the root of a general loss is computed once, by `roots`")

    root_transpose = root

    def roots(self, outputs, targets) -> Float[np.ndarray, "samples outputs outputs"]:
        """The root B of every sample, by eigendecomposition (on the host: batched `eigh` can hang inside XLA)."""
        size = math.prod(outputs.shape[1:])
        needed = 8 * len(outputs) * size**2
        if needed > ROOT_BYTES:
            raise NotApplicableError(
                f"the curvature of {len(outputs)} samples with {size} outputs each takes {needed / 2**30:.1f} GiB, and "
                f"at most {ROOT_BYTES / 2**30:.0f} are stored: use a named loss, or fewer samples"
            )
        alone = jax.jit(jax.vmap(jax.hessian(self.alone)))
        curvatures = np.asarray(alone(outputs, targets), np.float64).reshape(-1, size, size)
        values, vectors = np.linalg.eigh(curvatures)
        scale = np.abs(values).max(initial=0.0)
        if values.min(initial=0.0) < -1e-5 * scale:
            raise NotApplicableError(
                "the loss is not convex in the outputs (its curvature has the eigenvalue "
                f"{values.min():.3g} beside {scale:.3g}): there is no loss-weighted Gram matrix; use `ggn`"
            )
        return vectors * np.sqrt(np.clip(values, 0.0, None))[:, None, :]

    def by_sample(self, outputs, targets) -> Float[Array, " samples"]:
        """The loss of each sample."""
        return jax.jit(jax.vmap(self.alone))(outputs, targets)

    def alone(self, output, target):
        """The loss of a single sample."""
        return self.function(output[None], jax.tree.map(lambda x: x[None], target))


class StoredRoots(OutputLoss):
    """A loss of which only the roots [samples, outputs, outputs] are known: they take the place of the targets."""

    def value(self, outputs, targets):
        raise NotImplementedError("only the roots of the curvature are stored")

    def roots(self, outputs, targets):
        return targets

    def curvature(self, outputs, targets, vectors):
        return self.root(outputs, targets, self.root_transpose(outputs, targets, vectors))

    def root(self, outputs, targets, vectors):
        return jnp.einsum("nab,nb->na", targets, vectors.reshape(len(vectors), -1)).reshape(vectors.shape)

    def root_transpose(self, outputs, targets, vectors):
        return jnp.einsum("nba,nb->na", targets, vectors.reshape(len(vectors), -1)).reshape(vectors.shape)


def as_loss(loss: LossLike | OutputLoss) -> OutputLoss:
    """The loss of that name, or a general function as a loss."""
    if isinstance(loss, OutputLoss):
        return loss
    named = {"cross_entropy": CrossEntropy, "squared_error": SquaredError}
    if isinstance(loss, str):
        if loss not in named:
            raise ValueError(f"`loss` must be one of {list(named)} or a function of (outputs, targets), got {loss!r}")
        return named[loss]()
    return MeanLoss(as_function(loss))


class TaskLoss(eqx.Module):
    """See [`plastax_diagnostics.task_loss`][]."""

    model: Callable
    loss: OutputLoss

    def __call__(self, params: PyTree, data: PyTree) -> Float[Array, ""]:
        inputs, targets = data
        return self.loss.value(self.model(params, inputs), targets)


def task_loss(model: Callable, loss: LossLike) -> TaskLoss:
    """A model and a loss of its outputs, as the function `(params, data) -> scalar` that `hessian` needs.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: inputs @ params
        data = (jnp.ones((10, 3)), jnp.zeros(10, int))
        loss = diagnostics.task_loss(model, "cross_entropy")
        loss(jnp.zeros((3, 2)), data)  # log(2)
        operator = diagnostics.hessian(loss, jnp.zeros((3, 2)), data)
        ```

    **Arguments:**

    - `model`, `loss`: as in [`plastax_diagnostics.ggn`][].

    **Returns:**

    A function from `(params, (inputs, targets))` to the mean loss.
    """
    check_model(model)
    return TaskLoss(as_function(model), as_loss(loss))
