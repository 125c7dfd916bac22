"""What the effective-rank transformations measure: layers, samples, rows and directions, and which parameters count."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from .._checks import check_count
from .._effective_rank.loss import FeaturesFn, RankFn, check_reduction, effective_rank_loss, rank_and_gradient
from .._effective_rank.select import LayerFilter
from .keys import implementation
from .minibatch_window import some_samples


Mask = PyTree | Callable[[PyTree], Any] | None
"""Booleans like the parameters (or a prefix of them), or a function from the parameters to such, or `None` for all."""


@dataclass(frozen=True)
class Measure:
    """Of what the effective rank is computed, and with respect to which parameters. See `add_effective_rank`."""

    layers: LayerFilter
    rank: RankFn
    samples: int | None
    rows: int | None
    sketch: int | None
    key: PRNGKeyArray | None
    er_mask: Mask

    def __post_init__(self):
        if self.samples is not None:
            check_count("samples", self.samples)
        check_reduction(self.rank, self.rows, self.sketch)
        if self.key is not None:
            implementation(self.key)

    def rank_and_gradient(
        self,
        features: FeaturesFn,
        params: PyTree,
        inputs: PyTree[Array],
        *,
        model_state: PyTree,
        mask: Bool[Array, " samples"] | None,
        step: Int[Array, ""],
    ) -> tuple[Float[Array, ""], PyTree]:
        """The mean effective rank over layers, and the gradient of minus that mean, at the `step`-th update."""
        start = jax.random.key(0) if self.key is None else self.key
        samples_key, key = jax.random.split(jax.random.fold_in(start, step))
        inputs, mask = some_samples(inputs, mask, self.samples, samples_key)

        def loss(computed):
            return effective_rank_loss(
                computed,
                layers=self.layers,
                mask=mask,
                rank=self.rank,
                rows=self.rows,
                sketch=self.sketch,
                key=key,
            )

        def of_chosen(params, *others):
            return features(self._constant_elsewhere(params), *others)

        return rank_and_gradient(of_chosen, params, inputs, model_state=model_state, loss=loss)

    def _constant_elsewhere(self, params):
        chosen = self.er_mask(params) if callable(self.er_mask) else self.er_mask
        if chosen is None:
            return params

        def hold(keep, part):
            return part if keep else jax.tree.map(jax.lax.stop_gradient, part)

        return jax.tree.map(hold, chosen, params)
