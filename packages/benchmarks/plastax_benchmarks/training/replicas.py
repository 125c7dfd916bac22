"""The compiled programs of a run: all members at once, compiled once for all tasks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from . import batch_one_sgd as _batch_one_sgd, evaluate as _evaluate
from .task import NOTHING, Keys, Learner, Totals, Trainer, keys_of


class Member(NamedTuple):
    """One of the learners that are trained side by side: a seed, and settings of its own."""

    seed: int
    strengths: dict[str, float]


class Members(NamedTuple):
    """What differs between members, as arrays with a leading axis."""

    keys: Keys
    strengths: dict[str, Array]


class Programs:
    """Functions of all members at once."""

    def __init__(self, trainer: Trainer, data: PyTree, members: Sequence[Member]):
        """**Arguments:**

        - `trainer`: the functions of one member.
        - `data`: of the problem: an argument of the compiled programs, not a constant in them.
        - `members`: all have values for the same settings.
        """
        names = {frozenset(member.strengths) for member in members}
        if len(names) != 1:
            raise ValueError(f"members must have values for the same settings, got {sorted(map(sorted, names))}")
        self.trainer = trainer
        self.data = data
        self.size = len(members)
        keys = [keys_of(member.seed) for member in members]
        self.members = Members(
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *keys),
            {
                name: jnp.array([member.strengths[name] for member in members], jnp.float32)
                for name in next(iter(names))
            },
        )
        batched = _one_by_one if trainer.settings.network in ("convnet", "resnet18") else _side_by_side
        self._init = jax.jit(batched(lambda own, number: trainer.init(own.keys, own.strengths, number), 1))
        # One program for all members, so all must be of the kind that it is for.
        rank_one = all(_batch_one_sgd.applies(replace(trainer.settings, **member.strengths)) for member in members)
        self._train = jax.jit(batched(self._of_member(partial(trainer.train, rank_one=rank_one)), 4))
        self._train_rest = jax.jit(batched(self._of_member(trainer.train_rest), 4))
        self._orders = jax.jit(batched(lambda own, data, number: trainer.orders(own.keys, data, number), 1))
        self._known_orders: tuple[int, Array] | None = None
        self._evaluate = jax.jit(batched(self._looking(_evaluate.evaluate), 2))
        self._test_accuracy = jax.jit(batched(self._looking(_evaluate.test_accuracy), 2))

    def init(self, number: int) -> Learner:
        """New learners, as they would begin with a task."""
        return self._init(self.members, jnp.asarray(number))

    def nothing(self) -> Totals:
        """Totals at the start of a task."""
        return jax.tree.map(lambda leaf: jnp.zeros((self.size, *leaf.shape), leaf.dtype), NOTHING)

    def orders(self, number: int) -> Array:
        """The order of rows in each epoch of a task, which is the same for all parts of it: drawn and kept once."""
        if self._known_orders is None or self._known_orders[0] != number:
            self._known_orders = number, self._orders(self.members, self.data, jnp.asarray(number))
        return self._known_orders[1]

    def train(self, learner: Learner, totals: Totals, number: int, start: int, stop: int) -> tuple[Learner, Totals]:
        """Some blocks of a task."""
        return self._train(
            learner, totals, self.orders(number), self.members, self.data, *_numbers(number, start, stop)
        )

    def train_rest(self, learner: Learner, totals: Totals, number: int, start: int, stop: int):
        """The steps after the last block of a task."""
        return self._train_rest(
            learner, totals, self.orders(number), self.members, self.data, *_numbers(number, start, stop)
        )

    def evaluate(self, learner: Learner, number: int) -> _evaluate.Evaluation:
        """What is measured after a task."""
        return self._evaluate(learner, self.members, self.data, jnp.asarray(number))

    def test_accuracy(self, learner: Learner, number: int) -> Array:
        """Accuracy on held-out rows of a task."""
        return self._test_accuracy(learner, self.members, self.data, jnp.asarray(number))

    @staticmethod
    def _of_member(train: Callable) -> Callable:
        return lambda learner, totals, orders, own, data, *numbers: train(learner, totals, orders, *own, data, *numbers)

    def _looking(self, look: Callable) -> Callable:
        return lambda learner, own, data, number: look(self.trainer, learner, own.keys, data, number)


def _numbers(*numbers: int) -> tuple[Array, ...]:
    return tuple(jnp.asarray(number, jnp.int32) for number in numbers)


def _side_by_side(function: Callable, members: int) -> Callable:
    """The first arguments have an axis for members; the rest is shared."""

    def batched(*arguments: Any):
        return jax.vmap(function, in_axes=[0] * members + [None] * (len(arguments) - members))(*arguments)

    return batched


def _one_by_one(function: Callable, members: int) -> Callable:
    """Likewise, one member after the other.

    A convolution keeps all cores busy by itself, and batched over members it is slower on CPU.
    """

    def batched(*arguments: Any):
        own, shared = arguments[:members], arguments[members:]
        return jax.lax.map(lambda each: function(*each, *shared), own)

    return batched
