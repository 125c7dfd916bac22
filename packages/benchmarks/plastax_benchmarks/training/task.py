"""One learner and its training on one task, as pure functions.

A task is trained in blocks of `er_interval` steps, with the effective-rank step of Algorithm 1 at the end of each: no
branch is needed. How many blocks there are may be traced, so tasks of different lengths share one compiled program.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

import plastax

from ..config.run import Settings
from ..methods.recipes import Strengths, make_network, make_optimizer
from ..problems.stream import Examples, Problem, Rows, Task
from .batch_one_sgd import Affine, take_steps as take_rank_one_steps


class Learner(NamedTuple):
    """All that changes in training."""

    params: PyTree
    model_state: PyTree
    opt_state: PyTree


class Totals(NamedTuple):
    """Sums over the steps of a task so far, taken before each step: what online accuracy is made of."""

    loss: Float[Array, ""]
    correct: Float[Array, ""]


class Keys(NamedTuple):
    """The keys of one seed: for the stream of tasks, the order of rows, networks, and methods that draw."""

    stream: PRNGKeyArray
    order: PRNGKeyArray
    network: PRNGKeyArray
    method: PRNGKeyArray


def keys_of(seed: int) -> Keys:
    """All keys of a seed."""
    return Keys(*jax.random.split(jax.random.key(seed), 4))


NOTHING = Totals(jnp.zeros(()), jnp.zeros(()))


class Trainer:
    """The pure functions of a run, for one seed."""

    def __init__(self, problem: Problem, settings: Settings):
        """**Arguments:**

        - `problem`: the stream of tasks.
        - `settings`: of the run.
        """
        self.problem = problem
        self.settings = settings
        # All arrays of a network are parameters, so its static part needs no arrays.
        self.network = eqx.filter_eval_shape(self._network, jax.random.key(0))
        self.static = eqx.partition(self.network, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    def init(self, keys: Keys, strengths: Strengths, number: Int[Array, ""]) -> Learner:
        """A new learner, as it would begin with task `number`."""
        network_key, state_key = jax.random.split(jax.random.fold_in(keys.network, number))
        network = self._network(network_key)
        params = eqx.filter(network, eqx.is_inexact_array)
        return Learner(params, network.init_state(state_key), self._optimizer(keys, strengths).init(params))

    def orders(self, keys: Keys, data: PyTree, number: Int[Array, ""]) -> Int[Array, "epochs most"]:
        """The rows of task `number` in the order of each epoch: what `train` and `train_rest` go through."""
        task = self.problem.task(data, keys.stream, number)
        return epoch_orders(jax.random.fold_in(keys.order, number), task.train, self.settings.epochs)

    def train(
        self,
        learner: Learner,
        totals: Totals,
        orders: Int[Array, "epochs most"],
        keys: Keys,
        strengths: Strengths,
        data: PyTree,
        number: Int[Array, ""],
        start: Int[Array, ""],
        stop: Int[Array, ""],
        *,
        rank_one: bool = False,
    ) -> tuple[Learner, Totals]:
        """Blocks `start` to `stop` of task `number`; with `rank_one` in the faster way that plain SGD allows for."""
        take_steps, features = self._task_steps(orders, keys, strengths, data, number, rank_one=rank_one)
        size, er_rate = self.settings.block, self._er_rate(strengths)

        def block(i, carry):
            learner, totals = carry
            learner, totals, inputs = take_steps(learner, totals, i * size, size)
            if er_rate is not None:
                learner = learner._replace(params=self._raise_rank(features, learner, inputs, er_rate))
            return learner, totals

        return jax.lax.fori_loop(start, stop, block, (learner, totals))

    def train_rest(
        self,
        learner: Learner,
        totals: Totals,
        orders: Int[Array, "epochs most"],
        keys: Keys,
        strengths: Strengths,
        data: PyTree,
        number: Int[Array, ""],
        start: Int[Array, ""],
        stop: Int[Array, ""],
    ) -> tuple[Learner, Totals]:
        """Steps `start` to `stop` of task `number`: those after its last whole block."""
        take_steps, _ = self._task_steps(orders, keys, strengths, data, number)

        def step(i, carry):
            learner, totals = carry
            return take_steps(learner, totals, i, 1)[:2]

        return jax.lax.fori_loop(start, stop, step, (learner, totals))

    def steps_in(self, number: int) -> int:
        """How many steps a task has: whole minibatches only."""
        return self.settings.epochs * (self.problem.train_count(number) // self.settings.batch_size)

    def apply(self, learner: Learner, task: Task, inputs: Array, *, train: bool) -> tuple[Array, dict[str, Array], Any]:
        """Outputs that are in play, features, and the model's new state."""
        network = eqx.combine(learner.params, self.static)
        outputs, features, state = network(inputs, learner.model_state, train=train)
        return self.problem.active(task, outputs), features, state

    def _task_steps(
        self,
        orders: Int[Array, "epochs most"],
        keys: Keys,
        strengths: Strengths,
        data: PyTree,
        number: Int[Array, ""],
        *,
        rank_one: bool = False,
    ):
        """A function that takes some steps in a row, and one from parameters to the features whose rank counts."""
        task = self.problem.task(data, keys.stream, number)
        size = self.settings.batch_size
        per_epoch = task.train.count // size
        optimizer = self._optimizer(keys, strengths)

        def loss(params, model_state, examples):
            learner = Learner(params, model_state, None)
            outputs, features, model_state = self.apply(learner, task, examples.inputs, train=True)
            value = losses(self.problem, outputs, examples.targets)
            return jnp.mean(value), (jnp.mean(hits(self.problem, outputs, examples.targets)), features, model_state)

        def step(carry, block):
            (learner, totals), (examples, i) = carry, block
            value_and_gradient = jax.value_and_grad(loss, has_aux=True)
            (value, aux), gradients = value_and_gradient(learner.params, learner.model_state, examples)
            correct, features, model_state = aux
            progress = i.astype(jnp.float32) / (per_epoch * self.settings.epochs).astype(jnp.float32)
            updates, opt_state = optimizer.update(
                gradients, learner.opt_state, learner.params, features=features, progress=progress
            )
            params = optax.apply_updates(learner.params, updates)
            totals = Totals(totals.loss + value, totals.correct + correct)
            return (Learner(params, model_state, opt_state), totals), None

        def rows_at(i):
            place = (i % per_epoch) * size
            return jax.lax.dynamic_slice(orders, (i // per_epoch, place), (1, size))[0]

        def take_steps(learner, totals, first, count):
            numbers = first + jnp.arange(count, dtype=jnp.int32)
            rows = jax.vmap(rows_at)(numbers)
            flat = self.problem.examples(data, task, rows.reshape(-1), held_out=False)
            if rank_one and count > 1:
                return *self._rank_one_steps(learner, totals, task, strengths, flat), flat.inputs
            batches = jax.tree.map(lambda leaf: leaf.reshape(count, size, *leaf.shape[1:]), flat)
            (learner, totals), _ = jax.lax.scan(step, (learner, totals), (batches, numbers))
            return learner, totals, flat.inputs

        def features(params, inputs, model_state):
            # As in training: BatchNorm looks at the window itself. Its running statistics stay as they are.
            return self.apply(Learner(params, model_state, None), task, inputs, train=True)[1]

        return take_steps, features

    def _rank_one_steps(self, learner: Learner, totals: Totals, task: Task, strengths: Strengths, examples: Examples):
        """The same steps where one sample at a time allows for a faster way, up to rounding."""

        def of_outputs(outputs, target):
            outputs, target = self.problem.active(task, outputs[None]), target[None]
            return losses(self.problem, outputs, target)[0], hits(self.problem, outputs, target)[0]

        def arrays(params):
            dense = [hidden.layer for hidden in params.hidden] + [params.head]
            return tuple(Affine(each.kernel, each.bias) for each in dense)

        rate = strengths.get("learning_rate", self.settings.learning_rate)
        decay = strengths.get("weight_decay", self.settings.weight_decay or 0.0)
        layers, loss, correct = take_rank_one_steps(arrays(learner.params), *examples, of_outputs, rate, decay)
        params = eqx.tree_at(lambda params: jax.tree.leaves(arrays(params)), learner.params, jax.tree.leaves(layers))
        return learner._replace(params=params), Totals(totals.loss + loss, totals.correct + correct)

    def _raise_rank(self, features: Callable, learner: Learner, inputs: Array, rate) -> PyTree:
        """The parameters after the effective-rank steps at the end of a block."""
        layers = self.network.rank_layers

        def descend(_, params):
            gradient = plastax.effective_rank_gradient(
                lambda params, inputs: features(params, inputs, learner.model_state), params, inputs, layers=layers
            )
            return jax.tree.map(lambda p, g: p - jnp.asarray(rate, p.dtype) * g, params, gradient)

        steps = self.settings.er_steps or 1
        return jax.lax.fori_loop(0, steps, descend, learner.params, unroll=steps == 1)

    def _er_rate(self, strengths: Strengths):
        return strengths.get("er_learning_rate", self.settings.er_learning_rate)

    def _network(self, key: PRNGKeyArray):
        return make_network(self.settings, self.problem.input_shape, self.problem.outputs, key)

    def _optimizer(self, keys: Keys, strengths: Strengths) -> optax.GradientTransformationExtraArgs:
        return make_optimizer(self.settings, strengths, self.network, keys.method)


def epoch_orders(key: PRNGKeyArray, rows: Rows, epochs: int) -> Int[Array, "epochs most"]:
    """The rows of a task in a new order for each epoch; rows that do not belong to it stand at the end."""
    numbers = jnp.arange(rows.rows.size)

    def shuffled(key):
        draws = jax.random.uniform(key, rows.rows.shape)
        return rows.rows[jnp.argsort(jnp.where(numbers < rows.count, draws, 2.0))]

    return jax.vmap(shuffled)(jax.random.split(key, epochs))


def losses(problem: Problem, outputs: Array, targets: Array) -> Float[Array, " rows"]:
    """The loss of each row: cross-entropy, or half the squared error."""
    if problem.loss == "cross_entropy":
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
    return 0.5 * jnp.sum(jnp.square(outputs - targets), axis=-1)


def hits(problem: Problem, outputs: Array, targets: Array) -> Float[Array, " rows"]:
    """1 for each row that is classified right, 0 for others (and for all in a regression)."""
    if problem.loss == "cross_entropy":
        return (jnp.argmax(outputs, axis=-1) == targets).astype(jnp.float32)
    return jnp.zeros(outputs.shape[0])


def some_examples(
    problem: Problem, data: PyTree, task: Task, key: PRNGKeyArray, most: int, *, held_out: bool
) -> tuple[Examples, Float[Array, " rows"]]:
    """At most so many rows of a task, drawn without replacement, and a weight of 1 for each that is one.

    If the task has fewer, its rows come again with weight 0: no unit that lives on real rows looks dead on these.
    """
    rows = task.test if held_out else task.train
    size = min(most, rows.rows.size)
    order = epoch_orders(key, rows, 1)[0][:size]
    numbers = jnp.arange(size)
    weights = (numbers < rows.count).astype(jnp.float32)
    return problem.examples(data, task, order[numbers % rows.count], held_out=held_out), weights
