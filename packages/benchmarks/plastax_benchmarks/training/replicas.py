"""The compiled programs of a run: all replicas at once, compiled once for all tasks."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

import plastax_diagnostics as diagnostics

from ..config import RunConfig
from . import batch_one as _batch_one, evaluate as _evaluate
from .devices import OneDevice
from .members import Member
from .monitor import measure, monitor_of
from .task import NOTHING, Learner, Replica, TaskView, Totals, Trainer, keys_of


class Replicas:
    """Functions of several members at once. They share one program, so their values may only differ in real numbers."""

    def __init__(
        self,
        trainer: Trainer,
        data: PyTree,
        members: Sequence[Member],
        devices: OneDevice | None = None,
        *,
        side_by_side: bool | None = None,
    ):
        """**Arguments:**

        - `trainer`: the functions of one replica.
        - `data`: the data of the problem. It is an argument of the compiled programs, not a constant in them.
        - `members`: the members, which must have values for the same settings.
        - `devices`: where they are trained; by default all on one device.
        - `side_by_side`: whether they are batched, or trained one after the other. By default, what was faster in
            `plastax bench grouping`, see `faster_side_by_side`.
        """
        names = {frozenset(member.values) for member in members}
        if len(names) != 1:
            raise ValueError(f"members must have values for the same settings, got {sorted(map(sorted, names))}")
        self.trainer = trainer
        self.devices = OneDevice(len(members)) if devices is None else devices
        self.data = self.devices.share(data)
        keys = [keys_of(member.seed) for member in members]
        replicas = Replica(
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *keys),
            {name: jnp.array([member.values[name] for member in members], jnp.float32) for name in next(iter(names))},
        )
        self.replicas: Replica = self.devices.place(replicas)
        side_by_side = faster_side_by_side(trainer.config) if side_by_side is None else side_by_side
        batched = _side_by_side if side_by_side else _one_by_one
        # One program for all members, so all of them must be able to use it.
        can = all(_batch_one.applies(trainer.config.replace(**member.values)) for member in members)

        def over_replicas(function: Callable) -> Callable:
            """`function(own, replica, view, *numbers)` for all replicas; `own` is a tuple of the values of each one."""

            def one(own, replica, data, index, *numbers):
                return function(*own, replica, TaskView(data, replica.keys, index), *numbers)

            return jax.jit(self.devices.program(batched(one)))

        self._init = over_replicas(lambda replica, view: trainer.init(replica, view.index))
        self._train = over_replicas(partial(trainer.train, block=trainer.block, batch_one=can and trainer.batch_one))
        self._train_rest = over_replicas(partial(trainer.train, block=1))
        self._orders = over_replicas(lambda replica, view: trainer.orders(view))
        self._evaluate = over_replicas(lambda learner, replica, view: _evaluate.evaluate(trainer, learner, view))
        self._test_accuracy = over_replicas(
            lambda learner, replica, view: _evaluate.test_accuracy(trainer, learner, view)
        )
        self.monitor = monitor_of(trainer)
        self._measure = over_replicas(lambda learner, replica, view: measure(self.monitor, trainer, learner, view))
        self._known_orders: tuple[int, Array] | None = None

    def init(self, index: int) -> Learner:
        """New learners for the start of a task."""
        return self._call(self._init, (), jnp.asarray(index))

    def like_saved(self) -> Learner:
        """Shapes and types of the learners in a checkpoint, which has no padding."""
        return self.devices.like_real(jax.eval_shape(lambda: self.init(0)))

    def begin_task(self, learner: Learner) -> Learner:
        """Prepares learners for the start of a task."""
        return learner._replace(opt_state=self.trainer.config.method.begin_task(learner.opt_state))

    def nothing(self) -> Totals:
        """Totals at the start of a task."""
        return jax.tree.map(lambda leaf: jnp.zeros((self.devices.padded, *leaf.shape), leaf.dtype), NOTHING)

    def orders(self, index: int) -> Array:
        """The order of rows in each epoch of a task. It is drawn once and used for all parts of the task."""
        if self._known_orders is None or self._known_orders[0] != index:
            self._known_orders = index, self._call(self._orders, (), jnp.asarray(index))
        return self._known_orders[1]

    def train(self, learner: Learner, totals: Totals, index: int, start: int, stop: int) -> tuple[Learner, Totals]:
        """Trains some blocks of a task."""
        own = (learner, totals, self.orders(index))
        return self._call(self._train, own, *_numbers(index, start, stop))

    def train_rest(self, learner: Learner, totals: Totals, index: int, start: int, stop: int) -> tuple[Learner, Totals]:
        """Trains the steps after the last block of a task."""
        own = (learner, totals, self.orders(index))
        return self._call(self._train_rest, own, *_numbers(index, start, stop))

    def evaluate(self, learner: Learner, index: int) -> _evaluate.Evaluation:
        """What is measured after a task."""
        return self.devices.real(self._call(self._evaluate, (learner,), jnp.asarray(index)))

    def test_accuracy(self, learner: Learner, index: int) -> Array:
        """Accuracy on held-out rows of a task."""
        return self.devices.real(self._call(self._test_accuracy, (learner,), jnp.asarray(index)))

    def measure(self, learner: Learner, index: int) -> diagnostics.Measured:
        """What the monitor measures at the start of a task, with an axis of members."""
        return self.devices.real(self._call(self._measure, (learner,), jnp.asarray(index)))

    def _call(self, program: Callable, own: tuple, *numbers: Array):
        """Calls a program with the values of all replicas."""
        return program(self.devices.place(own), self.replicas, self.data, *numbers)

    def view(self, i: int, index: int) -> TaskView:
        """A task as replica `i` sees it."""
        keys = self.devices.member(self.replicas.keys, i)
        return TaskView(self.devices.first(self.data), keys, jnp.asarray(index))


def faster_side_by_side(config: RunConfig) -> bool:
    """Whether several learners are faster as a batch than one after the other, by measurements on CPU.

    Dense networks are, and small minibatches of the ConvNet (1.2 times, batch size 10). Larger minibatches of images
    keep all cores busy anyway, and need the memory of all learners at once. On GPUs nothing was measured: networks that
    take images are trained one after the other.
    """
    if not config.network.takes_images:
        return True
    return config.network.name == "convnet" and config.settings["batch_size"] <= 20 and jax.default_backend() == "cpu"


def _numbers(*numbers: int) -> tuple[Array, ...]:
    return tuple(jnp.asarray(number, jnp.int32) for number in numbers)


def _side_by_side(function: Callable) -> Callable:
    """The first two arguments have an axis for replicas; the rest is shared."""

    def batched(own, replicas, *shared):
        if len(jax.tree.leaves(replicas)[0]) == 1:
            # A single replica is faster without the axis: XLA treats products with it as batches of products.
            own, replicas = jax.tree.map(lambda leaf: leaf[0], (own, replicas))
            return jax.tree.map(lambda leaf: leaf[None], function(own, replicas, *shared))
        return jax.vmap(function, in_axes=(0, 0, *[None] * len(shared)))(own, replicas, *shared)

    return batched


def _one_by_one(function: Callable) -> Callable:
    """The same, one replica after the other."""

    def batched(own, replicas, *shared):
        return jax.lax.map(lambda each: function(*each, *shared), (own, replicas))

    return batched
