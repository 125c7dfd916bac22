"""The best values of each method in the laptop grids, which the laptop presets use.

They were chosen on the tuning seeds 100 and 101 by the rules of docs/protocol.md. docs/sweeps.md has the grids, and
docs/results.md has the results on other seeds.
"""

_PERMUTED_DIGITS = {
    "l2": {"weight_decay": 3e-3},
    "er": {"er_learning_rate": 3e-2},
    "l2_er": {"weight_decay": 3e-3, "er_learning_rate": 0.1},
    "l2_er_gradient": {"weight_decay": 3e-3, "er_weight": 3.0},
    "adaptive_l2_er": {"weight_decay": 1e-2, "er_weight": 3.0},
    "cbp": {"replacement_rate": 3e-4},
    "layernorm_l2": {"weight_decay": 3e-4},
    "spectral": {"spectral_strength": 3e-3},
    "snp_l2": {"weight_decay": 3e-3, "perturb_scale": 1e-3},
    "l2_init": {"weight_decay": 3e-3},
    "redo": {"dormant_threshold": 3e-2},
    "snr": {"rejection_rate": 3e-5},
    "upgd": {"weight_decay": 3e-3, "gradient_noise": 1e-2},
    "nap": {},
    "weight_clipping": {"clip_factor": 3.0},
    "hare_tortoise": {"slow_rate": 1e-3},
    "trac": {},
}
"""At the learning rate of the preset, which all methods share: `plastax sweep permuted-mnist --grid strengths`."""

_REGRESSION = {
    "bp": {"learning_rate": 2e-3},
    "l2": {"learning_rate": 3e-3, "weight_decay": 1e-2},
    "er": {"learning_rate": 1e-2, "er_learning_rate": 0.1},
    "l2_er": {"learning_rate": 1e-2, "weight_decay": 3e-3, "er_learning_rate": 3e-2},
    "l2_er_gradient": {"learning_rate": 1e-2, "weight_decay": 1e-2, "er_weight": 3.0},
    "cbp": {"learning_rate": 1e-2, "replacement_rate": 1e-4},
    "cbp_l2": {"learning_rate": 1e-2, "replacement_rate": 1e-4, "weight_decay": 3e-3},
    "layernorm_l2": {"learning_rate": 3e-3, "weight_decay": 1e-3},
    "spectral": {"learning_rate": 3e-3, "spectral_strength": 1e-2},
    "snp": {"learning_rate": 1e-2, "shrink": 1e-4, "perturb_scale": 1e-3},
    "snp_l2": {"learning_rate": 1e-2, "weight_decay": 1e-2, "perturb_scale": 1e-3},
    "l2_init": {"learning_rate": 1e-2, "weight_decay": 1e-2},
    "redo": {"learning_rate": 1e-2, "dormant_threshold": 3e-2},
    "parseval": {"learning_rate": 3e-3, "parseval_strength": 1e-4},
    "wasserstein": {"learning_rate": 3e-3, "weight_decay": 1e-2},
    "crelu": {"learning_rate": 2e-2},
    "reset": {"learning_rate": 1e-2},
}

_IMAGENET = {
    "bp": {"learning_rate": 5e-3},
    "l2": {"learning_rate": 5e-3, "weight_decay": 1e-3},
    "er": {"learning_rate": 5e-3, "er_learning_rate": 1e-3},
    "l2_er": {"learning_rate": 5e-3, "weight_decay": 1e-4, "er_learning_rate": 1e-3},
    "cbp": {"learning_rate": 5e-3, "replacement_rate": 1e-3},
    "layernorm_l2": {"learning_rate": 5e-3, "weight_decay": 1e-3},
    "spectral": {"learning_rate": 1e-2, "spectral_strength": 1e-2},
    "reset": {"learning_rate": 1e-2},
}

_CIFAR = {
    "bp": {"learning_rate": 1e-2},
    "l2": {"learning_rate": 2e-2, "weight_decay": 3e-4},
    "er": {"learning_rate": 1e-2, "er_learning_rate": 1e-3},
    "l2_er": {"learning_rate": 2e-2, "weight_decay": 3e-4, "er_learning_rate": 1e-3},
    "cbp": {"learning_rate": 1e-2, "replacement_rate": 1e-4},
    "layernorm_l2": {"learning_rate": 1e-2, "weight_decay": 3e-4},
    "spectral": {"learning_rate": 2e-2, "spectral_strength": 1e-2},
    "reset": {"learning_rate": 1e-2},
}

_RANDOM_LABELS = {
    "bp": {"learning_rate": 3e-3},
    "l2": {"learning_rate": 3e-3, "weight_decay": 1e-3},
    "er": {"learning_rate": 3e-2, "er_learning_rate": 0.1},
    "l2_er": {"learning_rate": 3e-2, "weight_decay": 3e-3, "er_learning_rate": 3e-2},
    "cbp": {"learning_rate": 1e-2, "replacement_rate": 1e-3},
    "layernorm_l2": {"learning_rate": 3e-3, "weight_decay": 1e-3},
    "spectral": {"learning_rate": 3e-2, "spectral_strength": 1e-2},
    "reset": {"learning_rate": 2e-2},
    "l2_er_gradient": {"learning_rate": 3e-2, "weight_decay": 3e-3, "er_weight": 1.0},
    "adaptive_l2_er": {"learning_rate": 3e-2, "weight_decay": 1e-2, "er_weight": 3.0},
    "cbp_l2": {"learning_rate": 1e-2, "replacement_rate": 1e-4, "weight_decay": 3e-3},
    "snp": {"learning_rate": 3e-2, "shrink": 1e-4, "perturb_scale": 1e-3},
    "snp_l2": {"learning_rate": 1e-2, "weight_decay": 1e-2, "perturb_scale": 1e-3},
    "l2_init": {"learning_rate": 3e-2, "weight_decay": 1e-2},
    "redo": {"learning_rate": 3e-2, "dormant_threshold": 0.1},
    "parseval": {"learning_rate": 3e-2, "parseval_strength": 1e-3},
    "wasserstein": {"learning_rate": 1e-2, "weight_decay": 1e-2},
    "crelu": {"learning_rate": 2e-2},
    "snr": {"learning_rate": 3e-2, "rejection_rate": 1e-2},
    "weight_clipping": {"learning_rate": 3e-3, "clip_factor": 2.0},
    "hare_tortoise": {"learning_rate": 1e-2, "slow_rate": 1e-3},
    "upgd": {"learning_rate": 3e-2, "weight_decay": 3e-3, "gradient_noise": 1e-2},
    "nap": {"learning_rate": 3e-3},
    "trac": {"learning_rate": 1e-3},
}

_ANT = {
    "bp": {"learning_rate": 3e-4},
    "l2": {"learning_rate": 1e-3, "weight_decay": 1e-3},
    "er": {"learning_rate": 1e-3, "er_learning_rate": 1e-4},
    "l2_er": {"learning_rate": 1e-3, "weight_decay": 1e-3, "er_learning_rate": 1e-3},
    "cbp": {"learning_rate": 1e-3, "replacement_rate": 1e-5},
    "layernorm_l2": {"learning_rate": 1e-3, "weight_decay": 1e-3},
    "spectral": {"learning_rate": 1e-3, "spectral_strength": 1e-2},
    "reset": {"learning_rate": 1e-3},
}

_TEXT = {
    "l2": {"weight_decay": 3e-4},
    "l2_er": {"weight_decay": 1e-4, "er_learning_rate": 1e-4},
    "cbp": {"replacement_rate": 3e-4},
    "redo": {"dormant_threshold": 0.3},
}
"""At the learning rate of the preset, which all methods share: `plastax sweep continual-text --grid strengths`."""

TUNED: dict[str, dict[str, dict[str, float]]] = {
    "permuted-mnist": _PERMUTED_DIGITS,
    "continual-imagenet": _IMAGENET,
    "incremental-cifar": _CIFAR,
    "random-label-mnist": _RANDOM_LABELS,
    "slowly-changing-regression": _REGRESSION,
    "continual-text": _TEXT,
    "slippery-ant": _ANT,
}
