"""One learner and its training on one task, as pure functions.

A task is trained in blocks, with the effective-rank step of Algorithm 1 at the end of each block, so no branch is
needed. The number of blocks may be traced, so tasks of different lengths share one compiled program.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

import plastax

from ..config import RunConfig
from ..methods import NetworkView, RankStep
from ..problems.catalog import SupervisedProblem
from ..problems.stream import Examples, Problem, Task
from . import batch_one
from .examples import epoch_orders
from .losses import hits, losses


class Learner(NamedTuple):
    """Everything that changes in training."""

    params: PyTree
    model_state: PyTree
    opt_state: PyTree


class Totals(NamedTuple):
    """Sums over the steps of a task so far, measured before each step. Online accuracy is computed from them."""

    loss: Float[Array, ""]
    correct: Float[Array, ""]


class Keys(NamedTuple):
    """The random keys of one seed: for the stream of tasks, the order of rows, networks, and methods that need one."""

    stream: PRNGKeyArray
    order: PRNGKeyArray
    network: PRNGKeyArray
    method: PRNGKeyArray


class Replica(NamedTuple):
    """What distinguishes the learners that are trained in parallel: their keys, and their values of a sweep."""

    keys: Keys
    values: dict[str, Any]


class TaskView(NamedTuple):
    """A task as one seed sees it: the data of the problem, the keys of the seed, and the index in the stream."""

    data: PyTree
    keys: Keys
    index: Int[Array, ""]


class Steps(NamedTuple):
    """Some steps of a task: their examples, one minibatch after the other, and their numbers."""

    task: Task
    examples: Examples
    numbers: Int[Array, " steps"]

    def part(self, start: int, stop: int) -> "Steps":
        """Some of them, if minibatches have one row."""
        examples = jax.tree.map(lambda leaf: leaf[start:stop], self.examples)
        return Steps(self.task, examples, self.numbers[start:stop])


def keys_of(seed: int) -> Keys:
    """All keys of a seed."""
    return Keys(*jax.random.split(jax.random.key(seed), 4))


NOTHING = Totals(jnp.zeros(()), jnp.zeros(()))


class Trainer:
    """The pure functions of a run, for one replica."""

    def __init__(self, problem: Problem, config: RunConfig):
        """**Arguments:**

        - `problem`: the stream of tasks.
        - `config`: the configuration of the run.
        """
        assert isinstance(config.problem, SupervisedProblem)
        self.problem = problem
        self.config = config
        self.settings = config.problem
        # All arrays of a network are parameters, so its static part needs no arrays.
        self.network = eqx.filter_eval_shape(self._network, jax.random.key(0))
        self.static = eqx.partition(self.network, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    @property
    def block(self) -> int:
        """Number of steps in a block: up to the next effective-rank step, or about a thousand rows."""
        rank_step, rule = self.config.method.rank_step, self.config.method.sgd_rule
        if rank_step is not None:
            return rank_step.interval
        usual = max(1, 1000 // max(self.settings.batch_size, 10))
        if rule is None or rule.interval in (None, 1) or self.settings.batch_size > 1:
            return usual
        # The optimizer takes the last step of a block, so that steps with an interval are last steps.
        return max(size for size in range(1, usual + 1) if rule.interval % size == 0)

    @property
    def batch_one(self) -> bool:
        """Whether blocks can be trained with the faster form of SGD with batch size 1."""
        rule = self.config.method.sgd_rule
        if rule is None or self.block == 1 or not batch_one.applies(self.config):
            return False
        tasks = range(self.settings.num_tasks) if rule.interval is not None and not rule.restarts else ()
        # After other numbers of steps, the interval would end in the middle of a block.
        return all(self.steps_in(index) % self.block == 0 for index in tasks)

    def init(self, replica: Replica, index: Int[Array, ""]) -> Learner:
        """A new learner for the start of task `index`."""
        network_key, state_key = jax.random.split(jax.random.fold_in(replica.keys.network, index))
        network = self._network(network_key)
        params = eqx.filter(network, eqx.is_inexact_array)
        return Learner(params, network.init_state(state_key), self._optimizer(replica).init(params))

    @functools.cached_property
    def new_parameters(self) -> Callable[[PRNGKeyArray], PyTree]:
        """Makes the parameters of a new network from a key. It is the same function each time."""
        return jax.jit(lambda key: eqx.filter(self._network(key), eqx.is_inexact_array))

    def orders(self, view: TaskView) -> Int[Array, "epochs most"]:
        """The rows of a task in the order of each epoch."""
        task = self.task(view)
        return epoch_orders(jax.random.fold_in(view.keys.order, view.index), task.train, self.settings.epochs)

    def train(
        self,
        learner: Learner,
        totals: Totals,
        orders: Int[Array, "epochs most"],
        replica: Replica,
        view: TaskView,
        start: Int[Array, ""],
        stop: Int[Array, ""],
        *,
        block: int,
        batch_one: bool = False,
    ) -> tuple[Learner, Totals]:
        """Trains blocks `start` to `stop` of a task.

        **Arguments:**

        - `learner`, `totals`: their values before these blocks.
        - `orders`: the order of the task's rows, from the method `orders`.
        - `replica`: the replica that is trained.
        - `view`: the task.
        - `start`, `stop`: indices of blocks.
        - `block`: steps in each block. An effective-rank step follows blocks of `Trainer.block` steps; shorter blocks
            are for the remaining steps at the end of a task.
        - `batch_one`: whether to use the faster form of SGD with batch size 1.
        """
        task, config = self.task(view), self.config.replace(**replica.values)
        rank_step = config.method.rank_step if block == self.block else None

        def take_block(i, carry):
            learner, totals = carry
            numbers = i * block + jnp.arange(block, dtype=jnp.int32)
            steps = Steps(task, self._examples(view, task, orders, numbers), numbers)
            take = self._batch_one_steps if batch_one and block > 1 else self._steps
            learner, totals = take(learner, totals, replica, steps)
            if rank_step is not None:
                learner = learner._replace(params=self._raise_rank(learner, steps.examples.inputs, rank_step))
            return learner, totals

        return jax.lax.fori_loop(start, stop, take_block, (learner, totals))

    def steps_in(self, index: int) -> int:
        """The number of steps of a task. Only complete minibatches count."""
        return self.settings.epochs * (self.problem.train_count(index) // self.settings.batch_size)

    def task(self, view: TaskView) -> Task:
        """The task's rows, and how it transforms them."""
        return self.problem.task(view.data, view.keys.stream, view.index)

    def apply(self, learner: Learner, task: Task, inputs: Array, *, train: bool) -> tuple[Array, dict[str, Array], Any]:
        """Outputs of active classes, features, and the model's new state."""
        network = eqx.combine(learner.params, self.static)
        outputs, features, state = network(inputs, learner.model_state, train=train)
        return self.problem.active(task, outputs), features, state

    def features(self, params: PyTree, inputs: Array, model_state: PyTree = None) -> dict[str, Array]:
        """Features as in training, for effective rank: with a row for each sample, or for each token of a sequence.

        BatchNorm uses the statistics of the inputs, and does not update its own.
        """
        features = eqx.combine(params, self.static)(inputs, model_state, train=True)[1]
        return self.rows(features)

    def rows(self, features: dict[str, Array]) -> dict[str, Array]:
        """Features for effective rank: tokens of a sequence are rows, and positions of an image stay as they are."""
        if len(self.problem.input_shape) > 1 or self.problem.input_dtype != jnp.int32:
            return features
        return {name: leaf.reshape(-1, leaf.shape[-1]) for name, leaf in features.items()}

    def _examples(self, view: TaskView, task: Task, orders: Array, numbers: Int[Array, " steps"]) -> Examples:
        """The examples of some steps, one minibatch after the other."""
        size = self.settings.batch_size
        per_epoch = task.train.count // size

        def rows_at(i):
            return jax.lax.dynamic_slice(orders, (i // per_epoch, (i % per_epoch) * size), (1, size))[0]

        rows = jax.vmap(rows_at)(numbers)
        return self.problem.examples(view.data, task, rows.reshape(-1), held_out=False)

    def _steps(self, learner: Learner, totals: Totals, replica: Replica, steps: Steps) -> tuple[Learner, Totals]:
        """Steps of the method's optimizer, one for each minibatch."""
        task, size = steps.task, self.settings.batch_size
        of_task = task.train.count // size * self.settings.epochs
        optimizer = self._optimizer(replica)

        def loss(params, model_state, batch):
            outputs, features, model_state = self.apply(
                Learner(params, model_state, None), task, batch.inputs, train=True
            )
            value = losses(self.problem, outputs, batch.targets)
            return jnp.mean(value), (jnp.mean(hits(self.problem, outputs, batch.targets)), features, model_state)

        def step(carry, given):
            (learner, totals), (batch, number) = carry, given
            value_and_gradient = jax.value_and_grad(loss, has_aux=True)
            (value, aux), gradients = value_and_gradient(learner.params, learner.model_state, batch)
            correct, features, model_state = aux
            updates, opt_state = optimizer.update(
                gradients,
                learner.opt_state,
                learner.params,
                inputs=batch.inputs,
                features=features,
                model_state=learner.model_state,
                progress=number.astype(jnp.float32) / of_task.astype(jnp.float32),
            )
            params = optax.apply_updates(learner.params, updates)
            totals = Totals(totals.loss + value, totals.correct + correct)
            return (Learner(params, model_state, opt_state), totals), None

        batches = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), steps.examples)
        return jax.lax.scan(step, (learner, totals), (batches, steps.numbers))[0]

    def _batch_one_steps(
        self, learner: Learner, totals: Totals, replica: Replica, steps: Steps
    ) -> tuple[Learner, Totals]:
        """The same steps in the faster form for batch size 1, equal up to rounding."""
        config = self.config.replace(**replica.values)
        rule = config.method.sgd_rule
        assert rule is not None
        rule = rule.in_state(learner.opt_state)

        def of_outputs(outputs, target):
            outputs, target = self.problem.active(steps.task, outputs[None]), target[None]
            return losses(self.problem, outputs, target)[0], hits(self.problem, outputs, target)[0]

        count = steps.numbers.size
        fast = count if rule.interval is None else count - 1
        inputs, targets = steps.part(0, fast).examples
        taken = batch_one.take_steps(
            learner.params,
            learner.opt_state,
            inputs,
            targets,
            of_outputs,
            config.optimizer.learning_rate,
            rule,
        )
        features = dict(zip(self.network.rank_layers, taken.features, strict=False))
        opt_state = rule.advance(taken.opt_state, inputs[:, None], features)
        learner = Learner(taken.params, learner.model_state, opt_state)
        totals = Totals(totals.loss + taken.loss, totals.correct + taken.correct)
        if rule.interval is None:
            return learner, totals
        return self._steps(learner, totals, replica, steps.part(fast, count))

    def _raise_rank(self, learner: Learner, inputs: Array, step: RankStep) -> PyTree:
        """The parameters after the effective-rank steps at the end of a block."""
        window = inputs[-step.window * self.settings.batch_size :]

        def descend(_, params):
            gradient = plastax.effective_rank_gradient(
                lambda params, inputs: self.features(params, inputs, learner.model_state),
                params,
                window,
                layers=self.network.rank_layers,
            )
            return jax.tree.map(lambda p, g: p - jnp.asarray(step.learning_rate, p.dtype) * g, params, gradient)

        return jax.lax.fori_loop(0, step.steps, descend, learner.params, unroll=step.steps == 1)

    def _network(self, key: PRNGKeyArray):
        options = self.config.method.network_options
        return self.config.network.make(self.problem.input_shape, self.problem.outputs, options, key)

    def _optimizer(self, replica: Replica) -> optax.GradientTransformationExtraArgs:
        """Clipping, then the method's optimizer. The effective-rank step is not part of it: `train` takes that step."""
        config = self.config.replace(**replica.values)
        minibatch = jax.ShapeDtypeStruct(
            (self.settings.batch_size, *self.problem.input_shape), self.problem.input_dtype
        )
        network = NetworkView(self.features, self.network.rank_layers, minibatch, self.network.resettable_units)
        # The same kind of Adam for all methods, whether they reset units or not.
        base = config.optimizer.make(resets_units=True)
        made = config.method.optimizer(base, network, replica.keys.method)
        max_norm = config.optimizer.max_grad_norm
        clip = [] if max_norm is None else [optax.clip_by_global_norm(max_norm)]
        return optax.with_extra_args_support(optax.chain(*clip, made))
