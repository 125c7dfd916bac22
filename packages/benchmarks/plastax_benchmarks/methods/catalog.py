"""All methods by name: what each is, where it comes from, and which settings it has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """A method, in words.

    **Arguments:**

    - `what`: one sentence.
    - `reference`: where it comes from.
    - `settings`: the settings that only methods have, beyond the learning rate and the network.
    """

    what: str
    reference: str
    settings: tuple[str, ...] = ()


_PAPER = "Prakash, He, Guo et al. 2026"
_DOHARE = "Dohare et al., Nature 2024"
_ER = ("er_learning_rate", "er_interval", "er_steps")
_CBP = ("replacement_rate", "decay_rate", "maturity_threshold")
_SPECTRAL = ("spectral_strength", "spectral_power", "spectral_target", "spectral_iterations")

METHODS = {
    "bp": Method("plain backpropagation", "Rumelhart et al. 1986"),
    "l2": Method("weight decay", "Krogh and Hertz 1991", ("weight_decay",)),
    "er": Method("effective-rank steps after every `er_interval` minibatches", _PAPER, _ER),
    "l2_er": Method("weight decay and effective-rank steps: the paper's method", _PAPER, ("weight_decay", *_ER)),
    "cbp": Method("continual backprop: the least useful units are replaced, slowly", _DOHARE, _CBP),
    "cbp_l2": Method("continual backprop with weight decay", _DOHARE, ("weight_decay", *_CBP)),
    "layernorm_l2": Method("LayerNorm before activations, with weight decay", "Lyle et al. 2024", ("weight_decay",)),
    "spectral": Method(
        "the largest singular value of each kernel is held near a target", "Lewandowski et al. 2024", _SPECTRAL
    ),
    "snp": Method(
        "shrink and perturb: parameters shrink a little and get noise at each step",
        "Ash and Adams 2020",
        ("shrink", "perturb_scale"),
    ),
    "snp_l2": Method(
        "noise at each step, with weight decay as the shrinking", _DOHARE, ("weight_decay", "perturb_scale")
    ),
    "reset": Method("a new network for every task: what a network that has not lost anything can do", _PAPER),
    "l2_init": Method("weight decay towards the initial parameters", "Kumar et al. 2023", ("weight_decay",)),
    "redo": Method("dormant units are recycled", "Sokar et al. 2023", ("dormant_threshold", "redo_interval")),
    "parseval": Method("weights of different units are kept orthogonal", "Chung et al. 2024", ("parseval_strength",)),
    "wasserstein": Method(
        "parameters are kept near the distribution of the initial ones", "Lewandowski et al. 2023", ("weight_decay",)
    ),
    "crelu": Method("concatenated ReLU: no unit can die", "Abbas et al. 2023"),
}

PAPER_METHODS = ("bp", "l2", "er", "l2_er", "cbp", "layernorm_l2", "spectral")
"""The seven methods of the paper's supervised figures."""


def settings_of_methods() -> frozenset[str]:
    """All settings that belong to some method."""
    return frozenset(name for method in METHODS.values() for name in method.settings)


def check_method(name: str) -> Method:
    """The method of that name, or an error that lists them all."""
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name]
