"""Rows of features: sequences as rows, and a random choice of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from plastax_kernels._sharding import gathered


MOST = 46340
"""The largest number of rows to choose: the bounds of the strata are computed in int32."""

RowMask = Bool[Array, " samples"] | Bool[Array, "samples time"]
"""Which samples count, or which positions of them."""


class Rows(NamedTuple):
    """A matrix of features, and which of its rows count (`None` for all)."""

    features: Float[Array, "rows width"]
    mask: Bool[Array, " rows"] | None


def as_rows(name: str, features: Any, mask: RowMask | None) -> Rows:
    """Features of samples [samples, width] as they are, and of sequences [samples, time, width] as one row a position.

    A mask over samples counts for all positions of a sample.
    """
    if features.ndim not in (2, 3):
        raise ValueError(
            f"the features {name!r} have shape {features.shape}, but effective rank needs [samples, width], or "
            "[samples, time, width] for sequences. Leave convolutional features and logits out with `layers`, or "
            "reshape the features to [rows, width]."
        )
    if mask is not None and mask.shape not in (features.shape[:1], features.shape[:-1]):
        raise ValueError(
            f"the mask must have one entry for each sample of the features {name!r}, shape {features.shape[:1]}, or "
            f"one for each of their rows, shape {features.shape[:-1]}, got shape {mask.shape}"
        )
    if features.ndim == 2:
        return Rows(features, mask)
    if mask is not None:
        mask = gathered(mask)
        mask = (mask if mask.ndim == 2 else jnp.repeat(mask, features.shape[1])).reshape(-1)
    features = gathered(features)
    return Rows(features.reshape(-1, features.shape[-1]), mask)


def choose_rows(whole: Rows, rows: int | None, key: PRNGKeyArray | None) -> Rows:
    """A random choice of that many rows: all of them if there are not more."""
    total = whole.features.shape[0]
    if rows is None or rows >= total:
        return whole
    assert key is not None
    index, mask = choose(total, rows, key, whole.mask)
    return Rows(gathered(whole.features)[index], mask)


def choose(
    total: int, chosen: int, key: PRNGKeyArray, mask: Bool[Array, " total"] | None
) -> tuple[Int[Array, " chosen"], Bool[Array, " chosen"] | None]:
    """One random index from each of `chosen` parts of equal length, and which of them count.

    Neighbors, the positions of a sequence, are alike: one from each part represents the whole better than an
    independent choice. The parts differ in length by one where `chosen` does not divide the total. They start at a
    random place, around the end, so that every index is chosen with the same probability. None is chosen twice.

    With a mask, the parts have equal numbers of indices that count; where there are fewer than `chosen`, each of them
    is chosen, and the rest of the result does not count.
    """
    if chosen > MOST:
        raise ValueError(f"at most {MOST} rows can be chosen, got {chosen}: leave it out, to use all of them")
    shift_key, key = jax.random.split(key)
    # Counts are at least 1 here: with nothing to choose from, nothing counts.
    count = jnp.asarray(total if mask is None else jnp.maximum(jnp.sum(mask, dtype=jnp.int32), 1), jnp.int32)
    step = jnp.arange(chosen + 1, dtype=jnp.int32)
    bounds = step * (count // chosen) + step * (count % chosen) // chosen
    lengths = jnp.diff(bounds)
    shift = jax.random.randint(shift_key, (), 0, count)
    within = jax.random.randint(key, (chosen,), 0, jnp.maximum(lengths, 1))
    place = (bounds[:-1] + within + shift) % count
    if mask is None:
        return place, None
    passed = jnp.cumsum(gathered(mask), dtype=jnp.int32)
    index = jnp.searchsorted(passed, place + 1).astype(jnp.int32)
    return jnp.minimum(index, total - 1), (lengths > 0) & jnp.any(mask)
