"""Settings for two CPU cores: the same streams with smaller networks and fewer tasks, so that a run takes minutes.

Their learning rates are high and their batches small, since a network loses plasticity only after many large steps.
"""

from typing import Any


def laptop(problem: str, method: str) -> dict[str, Any]:
    """The values that differ from the defaults of the classes, at laptop scale."""
    return _PROBLEMS[problem] | _OF_BOTH.get((problem, method), {})


_DIGITS = {"dataset": "digits", "batch_size": 1, "learning_rate": 0.03}

_PROBLEMS: dict[str, dict[str, Any]] = {
    "permuted-mnist": {**_DIGITS, "num_tasks": 40},
    "linearized-mnist": {**_DIGITS, "num_tasks": 20, "width": 1000, "learning_rate": 0.01},
    "random-label-mnist": {
        **_DIGITS,
        "num_tasks": 30,
        "train_size": 500,
        "epochs": 20,
        "batch_size": 4,
        "er_interval": 25,
    },
    "slowly-changing-regression": {
        "train_size": 10_000,
        "num_tasks": 100,
        "width": 5,
        "depth": 1,
        "learning_rate": 0.01,
    },
    "continual-imagenet": {
        "dataset": "imagenet32",
        "num_tasks": 100,
        "epochs": 2,
        "batch_size": 10,
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
        "channels": (8, 16, 32),
        "kernel_sizes": (3, 3, 3),
        "dense": (128, 128),
        "momentum": 0.9,
        "learning_rate": 0.02,
        "er_interval": 25,
        "er_learning_rate": 1e-3,
    },
    "slippery-ant": {
        "backend": "spring",
        "total_steps": 600_000,
        "change_every": 200_000,
        "seeds": 2,
        "num_envs": 64,
        "num_steps": 32,
        "update_epochs": 8,
        "num_minibatches": 8,
        "gamma": 0.97,
        "learning_rate": 1e-3,
        "entropy_weight": 1e-3,
        "normalize_observations": True,
        "actions": "tanh",
        "reward_scale": 0.1,
        "clip_values": False,
        "max_grad_norm": 1.0,
        # An effective-rank step after each rollout, on the last 512 rows. On all rows after each epoch it would take
        # most of the time.
        "er_learning_rate": 1e-3,
        "er_interval": 64,
        "er_window": 2,
        "replacement_rate": 1e-4,
        "dormant_threshold": 0.1,
        "redo_interval": 200,
        "log_every": 10,
        "checkpoint_every": 5,
    },
}

_OF_BOTH: dict[tuple[str, str], dict[str, Any]] = {
    ("continual-imagenet", "layernorm_l2"): {"weight_decay": 1e-5},
    ("incremental-cifar", "layernorm_l2"): {"weight_decay": 1e-4},
    ("incremental-cifar", "l2"): {"weight_decay": 1e-4},
}
"""Values that a method needs instead of the problem's own: those that the paper found best."""
