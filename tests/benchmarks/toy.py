"""Small problems for tests: a few images of 6 x 6 pixels whose class can be seen, and settings to match."""

import importlib

import numpy as np

from plastax_benchmarks.config import settings_for
from plastax_benchmarks.data import Images
from plastax_benchmarks.problems.catalog import PROBLEMS
from plastax_benchmarks.training.replicas import Member, Programs
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


SMALL = {"seeds": 2, "num_tasks": 3, "width": 8, "depth": 2, "eval_size": 40}
COLOUR = {"network": "convnet", "channels": (4,), "kernel_sizes": (3,), "dense": (8, 8), "batch_size": 6, "epochs": 2}


def toy_settings(problem, method="bp", **others):
    """The laptop's settings, made small."""
    small = {**SMALL, "er_interval": 7} if method in ("er", "l2_er") else dict(SMALL)
    if problem in ("continual-imagenet", "incremental-cifar"):
        small |= COLOUR
    if problem == "incremental-cifar":
        small |= {"classes_per_task": 3}
    if problem == "slowly-changing-regression":
        small |= {"train_size": 50, "test_size": 20}
    if problem == "random-label-mnist":
        small |= {"train_size": 100, "epochs": 2}
    return settings_for(problem, "laptop", method, **{**small, **others})


def toy_problem(settings):
    """The problem and its data."""
    module = importlib.import_module(f"plastax_benchmarks.problems.{PROBLEMS[settings.problem].module}")
    colour = settings.problem in ("continual-imagenet", "incremental-cifar")
    images = None if settings.dataset == "none" else toy_images(channels=3 if colour else None)
    return module.make(settings, images)


def toy_programs(settings, strengths=({},)):
    """The trainer and the compiled programs of a toy run."""
    problem, data = toy_problem(settings)
    trainer = Trainer(problem, settings)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    return trainer, Programs(trainer, data, [Member(seed, own) for own in strengths for seed in seeds])


def train_task(programs, learner, number):
    """All steps of a task, as the runner takes them."""
    trainer = programs.trainer
    steps, size = trainer.steps_in(number), trainer.settings.block
    learner, totals = programs.train(learner, programs.nothing(), number, 0, steps // size)
    if steps % size:
        learner, totals = programs.train_rest(learner, totals, number, steps - steps % size, steps)
    return learner, totals
