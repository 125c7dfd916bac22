"""Reads configurations stored by earlier versions."""

from collections.abc import Mapping
from typing import Any


ANT = {
    "lr": "learning_rate",
    "anneal_lr": "anneal",
    "hidden_size": "width",
    "er_lr": "er_learning_rate",
    "er_batch": "er_interval",
    "er_step": "er_steps",
    "redo_threshold": "dormant_threshold",
    "lambda0": "gae_lambda",
    "vf_coeff": "value_weight",
    "entropy_coeff": "entropy_weight",
    "normalise_advantages": "normalize_advantages",
    "normalise_observations": "normalize_observations",
    "compute_hessian_size": "diagnose_size",
    "hessian_order": "lanczos_order",
    "update_log_freq": "log_every",
}
"""Settings of the ant in earlier versions, which had the paper's names."""

_SPECTRA = ("compute_hessian_init", "compute_hessian_end", "compute_hessian_interval")

_DIGITS = ("permuted-mnist", "linearized-mnist", "random-label-mnist")


def upgrade(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a `config.json` under the current names of the settings.

    Earlier versions stored settings that a method, network or optimizer does not have as null or with a default.
    """
    new = dict(values)
    if new.get("problem") == "slippery-ant":
        new = {ANT.get(name, name): value for name, value in new.items() if name not in _SPECTRA}
        if values.get("compute_hessian_init") or values.get("compute_hessian_end"):
            new["diagnose_every"] = values.get("compute_hessian_interval", 1)
        new.setdefault("network", "actor-critic")
    if "standardise" in new:
        new["pixels"] = "standardized" if new.pop("standardise") else "unit"
        if new["pixels"] == "standardized" and new.get("problem") == "continual-imagenet" and new.get("train_size"):
            # Mean and variance were those of all images. The results differ now, so such a run cannot be resumed.
            new["pixels"] = "standardized by all images"
    if (
        "subset" not in new
        and new.get("problem") in _DIGITS
        and not new.get("train_size") is new.get("test_size") is None
    ):
        # There was no choice: the first rows were used.
        new["subset"] = "first"
    return new
