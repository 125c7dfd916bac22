"""Settings of the effective-rank transformations for features of sequences."""

from typing import TypedDict

from .._checks import check_count


class SequenceSettings(TypedDict):
    """Keyword arguments of `l2_er`, `add_effective_rank` and `effective_rank_step`."""

    interval: int
    samples: int
    rows: int


def sequence_settings(batch: int) -> SequenceSettings:
    """Settings with which effective rank costs less than 5 % of a training step of a wide transformer.

    For features [batch, time, width]. The defaults of [`plastax.l2_er`][], all rows at every step, are for features
    [samples, width]: on sequences they cost more than the training step itself.

    - `interval`: 10, or more for small minibatches.
    - `samples`: an eighth of the sequences, at least 4 if there are as many.
    - `rows`: 512 tokens of these sequences.

    The second forward and backward pass is that of `samples / (batch * interval)` of a training step, at most 4 %. The
    term in the loss, [`plastax.effective_rank_loss`][] with `rows=512`, needs no second pass, and no interval.

    !!! example

        ```python
        import jax
        import plastax

        model = plastax.models.Transformer(256, 32, width=32, heads=2, depth=2, key=jax.random.key(0))
        plastax.sequence_settings(32)  # {"interval": 10, "samples": 4, "rows": 512}
        regularizer = plastax.l2_er(
            lambda model, tokens: model(tokens)[1],
            weight_decay=1e-4,
            er_weight=1e-1,
            layers="block*.mlp",
            **plastax.sequence_settings(32),
        )
        ```

    **Arguments:**

    - `batch`: the number of sequences in one minibatch.

    **Returns:**

    A dictionary of keyword arguments. To change one of them: `**(plastax.sequence_settings(32) | {"rows": 1024})`.
    """
    check_count("batch", batch)
    samples = max(batch // 8, min(batch, 4))
    # The passes through the network are samples / batch of those of a step: every 25 / batch * samples steps, 4 %.
    return {"interval": max(10, -(-25 * samples // batch)), "samples": samples, "rows": 512}
