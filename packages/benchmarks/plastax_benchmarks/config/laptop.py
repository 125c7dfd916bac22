"""Settings for two CPU cores: the same streams with smaller networks and fewer tasks, so that a run takes minutes.

Their learning rates are high and their batches small, since it takes many large steps for plasticity to be lost.
"""

from typing import Any


def laptop(problem: str, method: str) -> dict[str, Any]:
    """Settings of a problem at the laptop's scale."""
    return _OF_METHODS | _PROBLEMS[problem] | _OF_BOTH.get((problem, method), {})


_OF_METHODS = {
    "weight_decay": 1e-3,
    "er_learning_rate": 1e-2,
    "er_interval": 100,
    "er_steps": 1,
    "replacement_rate": 1e-5,
    "decay_rate": 0.99,
    "maturity_threshold": 100,
    "spectral_strength": 1e-3,
    "spectral_power": 2,
    "spectral_target": 2.0,
    # One iteration is enough when each goes on from the last: parameters move little in a step.
    "spectral_iterations": 1,
    "shrink": 1e-5,
    "perturb_scale": 1e-4,
    "dormant_threshold": 0.025,
    "redo_interval": 1000,
    "parseval_strength": 1e-3,
}

_DIGITS = {"dataset": "digits", "batch_size": 1, "learning_rate": 0.03}

_PROBLEMS: dict[str, dict[str, Any]] = {
    "permuted-mnist": {**_DIGITS, "num_tasks": 40},
    "linearized-mnist": {**_DIGITS, "num_tasks": 20, "network": "gated-linear", "width": 1000, "learning_rate": 0.01},
    "random-label-mnist": {
        **_DIGITS,
        "num_tasks": 30,
        "train_size": 500,
        "epochs": 20,
        "batch_size": 4,
        "er_interval": 25,
    },
    "slowly-changing-regression": {
        "dataset": "none",
        "train_size": 10_000,
        "num_tasks": 100,
        "width": 5,
        "depth": 1,
        "learning_rate": 0.01,
    },
    "continual-imagenet": {
        "dataset": "imagenet32",
        "num_tasks": 60,
        "epochs": 2,
        "batch_size": 10,
        "network": "convnet",
        "channels": (8, 16, 16),
        "kernel_sizes": (3, 3, 3),
        "dense": (64, 64),
        "momentum": 0.9,
        "learning_rate": 0.02,
        "er_interval": 20,
        "er_learning_rate": 1e-3,
        "spectral_strength": 1e-2,
    },
    "incremental-cifar": {
        "dataset": "cifar100",
        "num_tasks": 10,
        "classes_per_task": 5,
        "epochs": 2,
        "batch_size": 10,
        "network": "convnet",
        "channels": (8, 16, 32),
        "kernel_sizes": (3, 3, 3),
        "dense": (128, 128),
        "momentum": 0.9,
        "learning_rate": 0.02,
        "er_interval": 25,
        "er_learning_rate": 1e-3,
    },
}

_OF_BOTH: dict[tuple[str, str], dict[str, Any]] = {
    ("continual-imagenet", "layernorm_l2"): {"weight_decay": 1e-5},
    ("incremental-cifar", "layernorm_l2"): {"weight_decay": 1e-4},
    ("incremental-cifar", "l2"): {"weight_decay": 1e-4},
}
"""Where a method wants other values than the problem's: those that the paper found best."""
