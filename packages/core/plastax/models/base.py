"""What all models share."""

import operator
from abc import abstractmethod
from collections.abc import Sequence
from typing import SupportsIndex

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, DTypeLike, PRNGKeyArray, PyTree

from .._checks import check_count
from .._units.description import Units


class Model(eqx.Module):
    """The calling convention of all models: `output, features, state = model(x, state, train=...)`.

    `x` is a batch, images are NHWC, sequences of tokens are integers [batch, time]. `features` holds all hidden
    features after their activation, by the name of the layer, as the next layer reads them. `state` is what changes
    without being trained, or is fixed without being a parameter: `None` for most models. All inexact arrays of a model
    are its trainable parameters: `eqx.partition(model, eqx.is_inexact_array)`.
    """

    @abstractmethod
    def __call__(self, x: Array, state: PyTree = None, *, train: bool) -> tuple[PyTree, dict[str, Array], PyTree]:
        """Runs a batch."""

    @property
    @abstractmethod
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts."""

    @property
    def unit_layers(self) -> tuple[str, ...] | None:
        """Names of the features that follow an activation function, where units can die. `None` for all features."""
        return None

    @abstractmethod
    def resettable_units(self) -> tuple[Units, ...]:
        """The units that a unit-resetting method may replace, and the arrays that hold them."""

    def init_state(self, key: PRNGKeyArray | None = None) -> PyTree:
        """The state to start with: `None` for a model that has none. Some models need a key."""
        return None


def check_batch(x: Array, sample: Sequence[int | str], dtype: DTypeLike, model: str) -> Array:
    """The batch in the dtype of the model, or an error if it is not a batch of such samples.

    In `sample`, a string stands for a size that may vary.
    """
    expected = f"[batch, {', '.join(map(str, sample))}]"
    if x.ndim != 1 + len(sample) or any(
        isinstance(size, int) and size != given for size, given in zip(sample, x.shape[1:], strict=True)
    ):
        raise ValueError(f"{model} takes a batch of shape {expected}, got shape {list(x.shape)}")
    if x.shape[0] == 0:
        raise ValueError(f"{model} takes a batch of shape {expected} with at least one sample, got none")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{model} takes floating point inputs, got {x.dtype}: scale and convert them first")
    return x.astype(dtype)


def check_tokens(x: Array, vocabulary: int, context: int, model: str) -> None:
    """Raises if this is not a batch of sequences of tokens. Values are only checked outside of compiled programs."""
    expected = f"{model} takes a batch of shape [batch, time], sequences of 1 to {context} tokens (`context`)"
    if x.ndim != 2 or not 1 <= x.shape[1] <= context:
        raise ValueError(f"{expected}, got shape {list(x.shape)}")
    if x.shape[0] == 0:
        raise ValueError(f"{expected}, with at least one sample, got none")
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{model} takes integer tokens, got {x.dtype}")
    if isinstance(x, Tracer):
        return
    # In numpy: constants of a program that is being traced have values, too.
    values = np.asarray(x)
    least, most = int(values.min()), int(values.max())
    if least < 0 or most >= vocabulary:
        wrong = least if least < 0 else most
        raise ValueError(f"{model} takes tokens from 0 to vocabulary - 1 = {vocabulary - 1}, got {wrong}")


def as_size(name: str, size: SupportsIndex) -> int:
    """A positive whole number of any integer type, `np.prod(shape)` included, as an `int`."""
    check_count(f"`{name}`", size)
    return operator.index(size)


def as_sizes(name: str, sizes: Sequence[SupportsIndex]) -> tuple[int, ...]:
    """The same for a sequence."""
    return tuple(as_size(f"{name}[{i}]", size) for i, size in enumerate(sizes))
