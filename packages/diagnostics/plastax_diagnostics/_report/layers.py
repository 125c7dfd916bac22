"""The part of a plasticity report that is about layers: units, ranks and norms."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from plastax import select_layers

from .._features.norms import feature_norms, norms
from .._features.ranks import ranks
from .._features.units import always_active_units, dead_units, dormant_units, saturated_units
from .._operators.function import as_function
from .results import LayerSummary, ParameterSummary


def layer_summaries(
    features: Callable, params: PyTree, inputs: Any, dormant_threshold: float
) -> tuple[LayerSummary, ...]:
    """Units and ranks of every layer that a features function returns."""
    found = jax.device_get(_statistics(as_function(features), params, inputs, dormant_threshold))
    broken = [name for name, finite in found["finite"].items() if not finite]
    if broken:
        raise ValueError(f"the features {broken} hold NaN or infinity: check the outputs of the network first")
    return tuple(
        LayerSummary(
            name=name.strip("[].'\""),
            units=len(dead),
            dead=float(np.mean(dead)),
            dormant=float(np.mean(found["dormant"][name])),
            always_active=float(np.mean(found["active"][name])),
            saturated=float(np.mean(found["saturated"][name])) if found["bounded"][name] else None,
            effective_rank=float(found["ranks"][name].effective),
            stable_rank=float(found["ranks"][name].stable),
            approximate_rank=int(found["ranks"][name].approximate),
            numerical_rank=int(found["ranks"][name].numerical),
            feature_norm=float(found["norms"][name]),
        )
        for name, dead in found["dead"].items()
    )


def norm_summaries(params: PyTree, gradient: PyTree) -> tuple[ParameterSummary, ...]:
    """Norms of every array of parameters and of its gradient."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    weights, gradients = (jax.tree.leaves(found) for found in jax.device_get(_norms((params, gradient))))
    return tuple(
        ParameterSummary(name, float(weight), float(slope))
        for name, weight, slope in zip(names, weights, gradients, strict=True)
    )


_norms = jax.jit(norms)  # One program for arrays of all shapes.


@eqx.filter_jit
def _statistics(features, params, inputs, dormant_threshold):
    found = select_layers(features(params, inputs))
    return {
        "finite": {name: jnp.all(jnp.isfinite(layer)) for name, layer in found.items()},
        "dead": dead_units(found),
        "dormant": dormant_units(found, dormant_threshold),
        "active": always_active_units(found),
        "saturated": saturated_units(found),
        "bounded": {name: (jnp.max(jnp.abs(x)) <= 1) & (jnp.min(x) < 0) for name, x in found.items()},
        "ranks": ranks(found),
        "norms": feature_norms(found),
    }
