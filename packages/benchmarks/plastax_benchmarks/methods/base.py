"""The base class of methods: settings, description, and how to build an optimizer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .._settings import Settings


if TYPE_CHECKING:  # Importing these takes a second, and the command line can list methods without them.
    import jax
    import optax
    from jaxtyping import PRNGKeyArray


class NetworkView(NamedTuple):
    """Information about the network for methods that need it.

    - `features`: a function from parameters, inputs and the model's state to the hidden features by name.
    - `rank_layers`: the names of the features whose effective rank is used.
    - `minibatch`: shape and dtype of the inputs of one step.
    - `units`: a function that returns the units that can be replaced.
    - `unit_init`: draws the incoming weights of a recycled unit; `None` for the default of `plastax.redo`.
    """

    features: Callable[..., Any]
    rank_layers: tuple[str, ...]
    minibatch: "jax.ShapeDtypeStruct"
    units: Callable[[], Any]
    unit_init: Callable[..., Any] | None = None


class RankStep(NamedTuple):
    """The effective-rank step of Algorithm 1, which follows the optimizer's own steps.

    - `learning_rate`: its step size.
    - `interval`: the number of minibatches between steps.
    - `window`: the number of most recent minibatches that it uses.
    - `steps`: the number of steps in a row.
    """

    learning_rate: "float | jax.Array"
    interval: int
    window: int
    steps: int


@dataclass(frozen=True)
class Method(Settings):
    """A method that preserves plasticity. The fields of a subclass are its settings.

    Real-numbered settings may be traced, so a sweep over them is `dataclasses.replace` inside a vmapped function.
    Modules with methods import jax, optax and plastax inside of functions, so that `plastax --help` is fast.
    """

    name: ClassVar[str]
    """Its name on the command line and in files."""
    words: ClassVar[str]
    """A short description."""
    reference: ClassVar[str]
    """The publication that introduced it."""
    color: ClassVar[str]
    """Its color in every figure."""
    strengths: ClassVar[tuple[str, ...]] = ()
    """The settings that determine how strongly it acts, at most two. Grids of sweeps are made of them."""
    network_options: ClassVar[Mapping[str, Any]] = {}
    """Options of the network that belong to the method, such as `{"layer_norm": True}`."""
    adds_only_weight_decay: ClassVar[bool] = False
    """Whether its optimizer is the base optimizer, with or without weight decay. Batch-1 SGD then has a faster form."""
    replaces_units: ClassVar[bool] = False
    """Whether it replaces units of the network."""
    renews_network: ClassVar[bool] = False
    """Whether each task starts with a new network."""

    def optimizer(
        self, base: "optax.GradientTransformationExtraArgs", network: NetworkView, key: "PRNGKeyArray"
    ) -> "optax.GradientTransformationExtraArgs":
        """The optimizer of the method.

        **Arguments:**

        - `base`: the base optimizer, such as SGD.
        - `network`: information about the network.
        - `key`: a random key for methods that need one.

        **Returns:**

        A transformation whose `update` gets `inputs=`, `features=` and `model_state=` of the training step.
        """
        del network, key
        return base

    def begin_task(self, opt_state: Any) -> Any:
        """The optimizer's state at the start of a task. By default it stays the same."""
        return opt_state

    @property
    def rank_step(self) -> RankStep | None:
        """The step that follows the optimizer's every `interval` minibatches, if the method has one."""
        return None


PAPER = "Prakash, He, Guo et al. 2026"
DOHARE = "Dohare et al., Nature 2024"
