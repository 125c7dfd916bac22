"""Settings for two CPU cores: the same streams with smaller networks and fewer tasks, so that a run takes minutes.

Their learning rates are high and their batches small, since a network loses plasticity only after many large steps.
"""

from typing import Any

from ..methods import GRADIENT_FORMS
from .laptop_tuned import TUNED


def laptop(problem: str, method: str) -> dict[str, Any]:
    """The values that differ from the defaults of the classes, at laptop scale.

    Where a method of `GRADIENT_FORMS` was not tuned, it has the values of `l2_er`, from which its `er_weight` follows.
    """
    tuned = TUNED.get(problem, {})
    both = tuned.get("l2_er", {}) if method in GRADIENT_FORMS else {}
    return _PROBLEMS[problem] | tuned.get(method, both)


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
        "num_tasks": 5,
        "classes_per_task": 5,
        # Enough to fit the training rows. With two epochs, old knowledge is worth more than fresh units.
        "epochs": 40,
        "batch_size": 50,
        "channels": (8, 16, 32),
        "kernel_sizes": (3, 3, 3),
        "dense": (128, 128),
        "momentum": 0.9,
        "learning_rate": 0.02,
        "er_interval": 25,
        "er_window": 5,
        "er_learning_rate": 1e-3,
    },
    "continual-text": {
        # 200 steps of Adam in each task.
        "num_tasks": 20,
        "train_size": 800,
        "test_size": 400,
        "batch_size": 4,
        "eval_size": 400,
        "learning_rate": 3e-3,
        # 512 tokens, twice the units of an MLP.
        "er_interval": 20,
        "er_window": 4,
        "er_learning_rate": 1e-3,
        "redo_interval": 100,
    },
    "slippery-ant": {
        "backend": "spring",
        # Eleven frictions of two windows each.
        "total_steps": 450_560,
        "change_every": 40_960,
        "own_frictions": True,
        "num_envs": 64,
        "num_steps": 32,
        "width": 64,
        # Many steps with a high learning rate on each rollout, until plain backprop falls behind new agents.
        "update_epochs": 10,
        "num_minibatches": 32,
        "gamma": 0.97,
        "learning_rate": 3e-3,
        "entropy_weight": 1e-3,
        "normalize_observations": True,
        "actions": "tanh",
        "reward_scale": 0.1,
        "clip_values": False,
        # An effective-rank step after each epoch, on its last 512 rows.
        "er_learning_rate": 1e-3,
        "er_interval": 32,
        "er_window": 8,
        "replacement_rate": 1e-4,
        "dormant_threshold": 0.1,
        "redo_interval": 200,
        "log_every": 10,
        "checkpoint_every": 5,
    },
}
