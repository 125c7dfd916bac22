"""The runs of all figures at each scale, as data."""

from typing import Any, NamedTuple

from .._errors import check_name
from ..config import configure
from .need import Need


LAPTOP, PAPER = "laptop", "paper"
SCALES = (LAPTOP, PAPER)

PROBLEMS = ("permuted-mnist", "continual-imagenet", "incremental-cifar", "slippery-ant")
"""The paper's four problems."""

SUPERVISED = PROBLEMS[:3]

METHODS = ("bp", "l2", "er", "l2_er", "cbp", "layernorm_l2", "spectral", "reset")
"""The paper's methods, and new networks as the reference."""

SPECTRA_METHODS = ("bp", "er", "l2", "cbp", "l2_er")
"""The methods whose spectra the paper shows."""


class Stream(NamedTuple):
    """How the networks of a problem are measured at one scale.

    - `shared`: settings of the runs for spectra and curvature, the same for all methods.
    - `spectra_every`: tasks between spectra.
    - `ranks_every`: tasks between epsilon-ranks.
    - `rank_methods`, `rank_seeds`: the methods and the number of seeds with epsilon-ranks.
    """

    shared: dict[str, Any]
    spectra_every: int
    ranks_every: int
    rank_methods: tuple[str, ...] = ("bp",)
    rank_seeds: int = 5


STREAMS: dict[str, dict[str, Stream]] = {
    LAPTOP: {
        "permuted-mnist": Stream({"diagnose_size": 400}, 19, 4),
        # At the tuned learning rates nothing collapses within 100 tasks; at this one plain backprop does.
        "continual-imagenet": Stream({"diagnose_size": 400, "learning_rate": 0.02}, 33, 2, rank_seeds=2),
        "incremental-cifar": Stream({"diagnose_size": 200}, 2, 1, ("bp", "l2_er")),
    },
    PAPER: {
        "permuted-mnist": Stream({}, 395, 10),
        "continual-imagenet": Stream({}, 995, 20),
        "incremental-cifar": Stream({"diagnose_size": 200}, 5, 1, ("bp", "l2_er")),
    },
}

LINEARIZED: dict[str, tuple[str, dict[str, Any]]] = {
    "no regularizer": ("bp", {}),
    "L2": ("l2", {}),
    "low-rank initialization": ("bp", {"initial_rank": 10}),
}
"""The lines of the figure of the linearized network: the method, and settings."""

LINEARIZED_SETTINGS: dict[str, dict[str, Any]] = {
    # The weights of this network move far only at a high learning rate, which the loss-weighted curvature allows.
    LAPTOP: {
        "learning_rate": 0.3,
        "num_tasks": 40,
        "seeds": 3,
        "epsilon_rank_every": 3,
        "epsilon_rank_rows": 100,
    },
    PAPER: {"epsilon_rank_every": 4, "epsilon_rank_rows": 100},
}


def performance_needs(scale: str) -> list[Need]:
    """All methods on all problems. Five seeds at laptop scale, those of the paper at its scale."""
    check_name("scale", scale, SCALES)
    seeds = {"seeds": 5} if scale == LAPTOP else {}
    return [
        Need(f"{problem}-{method}", configure(problem, scale, method, **seeds))
        for problem in PROBLEMS
        for method in METHODS
    ]


def rank_needs(scale: str) -> list[Need]:
    """The runs whose epsilon-rank at task switches is compared with accuracy, and new networks where tasks differ."""
    found = []
    for problem, stream in STREAMS[scale].items():
        rates = {name: value for name, value in stream.shared.items() if name == "learning_rate"}
        settings = {"seeds": stream.rank_seeds, **rates}
        for method in stream.rank_methods:
            config = configure(problem, scale, method, epsilon_rank_every=stream.ranks_every, **settings)
            found.append(Need(f"{problem}-{method}-ranks", config))
        if problem == "incremental-cifar":
            found.append(Need(f"{problem}-reset", configure(problem, scale, "reset", **settings)))
    return found


def spectra_needs(scale: str, problem: str, methods: tuple[str, ...] = SPECTRA_METHODS) -> list[Need]:
    """Runs of one seed with spectra at three tasks or more."""
    stream = STREAMS[scale][problem]
    return [
        Need(
            f"{problem}-{method}-spectra",
            configure(problem, scale, method, seeds=1, diagnose_every=stream.spectra_every, **stream.shared),
        )
        for method in methods
    ]


def linearized_needs(scale: str) -> list[Need]:
    """The linearized network without and with a regularizer, and with a low-rank initialization."""
    return [
        Need(
            f"linearized-{name.lower().replace(' ', '-')}",
            configure("linearized-mnist", scale, method, **{**LINEARIZED_SETTINGS[scale], **settings}),
        )
        for name, (method, settings) in LINEARIZED.items()
    ]
