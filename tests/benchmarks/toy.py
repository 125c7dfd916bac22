"""Small problems for tests: a few images of 6 x 6 pixels whose class can be seen, and settings to match."""

import numpy as np

from plastax_benchmarks._settings import fields_of
from plastax_benchmarks.config import configure
from plastax_benchmarks.config.laptop import laptop
from plastax_benchmarks.data import Images, Section, Text
from plastax_benchmarks.methods import METHODS, needed_by
from plastax_benchmarks.problems.catalog import ContinualTextSettings, ImageSettings
from plastax_benchmarks.problems.load import make_problem
from plastax_benchmarks.training.members import Member
from plastax_benchmarks.training.replicas import Replicas
from plastax_benchmarks.training.task import Trainer


def toy_images(classes=10, train=12, test=5, channels=None, size=6, seed=0):
    """So many images of each class, unsorted: noise around a pattern of the class."""
    rng = np.random.default_rng(seed)
    shape = (size, size) if channels is None else (size, size, channels)
    patterns = rng.integers(0, 256, (classes, *shape))

    def draw(count):
        labels = rng.permutation(np.repeat(np.arange(classes), count)).astype(np.int32)
        noise = rng.normal(0, 40, (len(labels), *shape))
        return np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8), labels

    return Images("toy", "a test", *draw(train), *draw(test))


def toy_text(sections=4, size=900, seed=0):
    """Sections of bytes from an alphabet of twelve. Each byte is followed by one of two others."""
    rng = np.random.default_rng(seed)
    follow = rng.permuted(np.tile(np.arange(12), (2, 1)), axis=1)

    def write():
        found = [0]
        for _ in range(size - 1):
            found.append(int(follow[rng.integers(2), found[-1]]))
        return bytes(97 + letter for letter in found)

    return Text("a test", tuple(Section(f"part{i}", write()) for i in range(sections)))


SMALL = {"seeds": 2, "num_tasks": 3, "width": 8, "depth": 2, "eval_size": 40}
TEXT = {"train_size": 40, "test_size": 10, "context": 8, "batch_size": 4, "heads": 2, "depth": 1}
COLOR = {"channels": (4,), "kernel_sizes": (3,), "dense": (8, 8), "batch_size": 6, "epochs": 2}


def toy_config(problem, method="bp", **others):
    """The laptop's configuration, made small, with moderate strengths. Tuned ones are strong, and amplify rounding."""
    kind, moderate = METHODS[method], laptop(problem, method="none")
    small = SMALL | {name: getattr(kind(), name) for name in kind.strengths if name != "er_weight"}
    small |= {name: moderate[name] for name in ("learning_rate", *kind.strengths) if name in moderate}
    if needed_by(method):
        # The presets have rates for SGD.
        small |= {**needed_by(method), "learning_rate": 3e-3}
    if "er_interval" in fields_of(kind):
        small |= {"er_interval": 7}
    if problem in ("continual-imagenet", "incremental-cifar"):
        del small["width"], small["depth"]
        small |= COLOR
    if problem == "incremental-cifar":
        small |= {"classes_per_task": 3}
    if problem == "slowly-changing-regression":
        small |= {"train_size": 50, "test_size": 20}
    if problem == "continual-text":
        small |= TEXT
    if problem == "random-label-mnist":
        small |= {"train_size": 100, "epochs": 2}
    if problem == "linearized-mnist" or others.get("network") == "gated-linear":
        del small["depth"]
    return configure(problem, "laptop", method, **{**small, **others})


def toy_problem(config):
    """The problem and its data."""
    if isinstance(config.problem, ContinualTextSettings):
        return make_problem(config.problem, toy_text())
    color = config.problem.name in ("continual-imagenet", "incremental-cifar")
    images = toy_images(channels=3 if color else None) if isinstance(config.problem, ImageSettings) else None
    return make_problem(config.problem, images)


def toy_replicas(config, values=({},)):
    """The trainer and the compiled programs of a toy run."""
    problem, data = toy_problem(config)
    trainer = Trainer(problem, config)
    seeds = range(config.seed, config.seed + config.seeds)
    return trainer, Replicas(trainer, data, [Member(seed, own) for own in values for seed in seeds])


def train_task(replicas, learner, index):
    """All steps of a task, as the runner takes them."""
    trainer = replicas.trainer
    steps, size = trainer.steps_in(index), trainer.block
    learner = replicas.begin_task(learner)
    learner, totals = replicas.train(learner, replicas.nothing(), index, 0, steps // size)
    if steps % size:
        learner, totals = replicas.train_rest(learner, totals, index, steps - steps % size, steps)
    return learner, totals
