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


class SpectralTerm(NamedTuple):
    """The spectral penalty `strength * (sigma^power - target)^2` of each kernel, with one power iteration per step."""

    strength: "float | jax.Array"
    power: int
    target: "float | jax.Array"


class SGDRule(NamedTuple):
    """What a method makes of SGD steps, between the steps that its optimizer has to take.

    A parameter p with the gradient g becomes `keep * (p - rate * (g + decay * (p - anchor)))`. Steps with batch size 1
    that follow such a rule have a faster form, see `training.batch_one`.

    - `decay`: the weight decay of kernels.
    - `vector_decay`: that of biases and scales, by default the same.
    - `active`: a function from the optimizer's state to whether there is any decay; always by default.
    - `anchor`: a function from the optimizer's state to parameters that others decay toward; zero by default.
    - `keep`: the fraction of a parameter that remains after a step.
    - `spectral`: the spectral penalty, if the method has one.
    - `interval`: the optimizer itself takes every `interval`-th step; no step by default, all steps if it is 1.
    - `advance`: a function of the optimizer's state, the inputs [steps, 1, ...] and the features [steps, width] by name
        of steps that were taken without it. Returns the state after them.
    - `restarts`: whether the interval starts again with each task.
    """

    decay: "float | jax.Array" = 0.0
    vector_decay: "float | jax.Array | None" = None
    active: Callable[[Any], "jax.Array"] | None = None
    anchor: Callable[[Any], Any] | None = None
    keep: "float | jax.Array" = 1.0
    spectral: SpectralTerm | None = None
    interval: int | None = None
    advance: Callable[[Any, "jax.Array", "dict[str, jax.Array]"], Any] = lambda opt_state, inputs, features: opt_state
    restarts: bool = False

    def in_state(self, opt_state: Any) -> "SGDRule":
        """The rule for the next steps, in a state of the optimizer."""
        if self.active is None:
            return self
        return self._replace(decay=self.decay * self.active(opt_state).astype("float32"), active=None)


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
    replaces_units: ClassVar[bool] = False
    """Whether it replaces units of the network."""
    renews_network: ClassVar[bool] = False
    """Whether each task starts with a new network."""
    needs_optimizer: ClassVar[str | None] = None
    """The name of the only base optimizer that it works with. By default it works with all of them."""

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

    def evaluated(self, params: Any, opt_state: Any) -> Any:
        """The parameters whose accuracy and loss are measured at the end of a task. By default those in training."""
        del opt_state
        return params

    @property
    def sgd_rule(self) -> SGDRule | None:
        """What the method makes of SGD steps, or `None` if only its optimizer can take them."""
        return None

    @property
    def rank_step(self) -> RankStep | None:
        """The step that follows the optimizer's every `interval` minibatches, if the method has one."""
        return None


def find_state(opt_state: Any, kind: type) -> Any:
    """The state of that type in the state of a composed optimizer."""
    import jax

    def is_leaf(node):
        return isinstance(node, kind)

    (found,) = filter(is_leaf, jax.tree.leaves(opt_state, is_leaf=is_leaf))
    return found


def replace_state(opt_state: Any, kind: type | tuple[type, ...], change: Callable[[Any], Any]) -> Any:
    """The state of a composed optimizer, with the state of that type changed."""
    import jax

    def is_leaf(node):
        return isinstance(node, kind)

    return jax.tree.map(lambda node: change(node) if is_leaf(node) else node, opt_state, is_leaf=is_leaf)


def count_steps(kind: type | tuple[type, ...]) -> Callable[[Any, "jax.Array", "dict[str, jax.Array]"], Any]:
    """An `advance` that only counts the steps, in the state of that type."""

    def advance(opt_state, inputs, features):
        del features
        return replace_state(opt_state, kind, lambda state: state._replace(count=state.count + len(inputs)))

    return advance


PAPER = "Prakash, He, Guo et al. 2026"
DOHARE = "Dohare et al., Nature 2024"
