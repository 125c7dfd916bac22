"""Which settings have an effect on a run: the command line neither shows nor takes the others."""

from typing import NamedTuple

from .._errors import UsageError
from ..methods.catalog import METHODS, settings_of_methods


_IMAGES = ("continual-imagenet", "incremental-cifar")
_DIGITS = ("permuted-mnist", "linearized-mnist", "random-label-mnist")

_OF_METHODS = {
    name: tuple(each for each, method in METHODS.items() if name in method.settings) for name in settings_of_methods()
}

_OF_PROBLEMS = {
    "dataset": (*_DIGITS, *_IMAGES),
    "data_dir": (*_DIGITS, *_IMAGES),
    "subset": _DIGITS,
    "classes_per_task": _IMAGES,
    "pixels": ("continual-imagenet",),
    "flipping_bits": ("slowly-changing-regression",),
    "input_bits": ("slowly-changing-regression",),
}

_OF_NETWORKS = {
    "width": ("mlp", "gated-linear", "resnet18"),
    "depth": ("mlp",),
    "channels": ("convnet",),
    "kernel_sizes": ("convnet",),
    "padding": ("convnet",),
    "dense": ("convnet", "resnet18"),
    "activation": ("mlp", "convnet"),
    "initial_rank": ("gated-linear",),
}

_OF_OPTIMIZERS = {"momentum": ("sgd",)}


class Choices(NamedTuple):
    """What decides which settings have an effect."""

    problem: str
    method: str
    network: str
    optimizer: str


def without_effect(choices: Choices) -> dict[str, str]:
    """The settings that have no effect, each with the reason."""
    tables = (_OF_PROBLEMS, _OF_METHODS, _OF_NETWORKS, _OF_OPTIMIZERS)
    return {
        name: f"on {kind} {choice}: it belongs to {', '.join(owners)}"
        for kind, choice, table in zip(Choices._fields, choices, tables, strict=True)
        for name, owners in table.items()
        if choice not in owners
    }


def check_network(choices: Choices) -> None:
    """Refuses a network that cannot take the problem's inputs, or whose units the method cannot replace."""
    networks = ("convnet", "resnet18") if choices.problem in _IMAGES else ("mlp", "gated-linear")
    if choices.network not in networks:
        raise UsageError(
            f"--network {choices.network} cannot take the inputs of {choices.problem}: choose one of "
            f"{', '.join(networks)}"
        )
    if choices.network == "gated-linear" and choices.method in ("cbp", "cbp_l2", "redo"):
        raise UsageError(
            f"method {choices.method} replaces units, and those of a gated-linear network are frozen: choose another "
            "method, or --network mlp"
        )
