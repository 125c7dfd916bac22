"""Diagnose a fresh and a collapsed network at the start of the same new task, then train both and compare.

A small ReLU network learns one task of random labels after another with plain SGD until many of its units are dead and
little curvature is left. A fresh network of the same size is the reference. One report for each distinguishes them
before the first step on the new task. Full-batch training then shows whether the reports were right.

    python examples/diagnose_collapse.py --out collapse.png
"""

import argparse
import dataclasses
from itertools import pairwise

import jax
import jax.numpy as jnp

import plastax_diagnostics as diagnostics


SIZES = (64, 40, 40, 40, 5)
SAMPLES = 80


@jax.jit
def init(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    return [
        {"kernel": jax.random.normal(key, pair) * (2 / pair[0]) ** 0.5, "bias": jnp.zeros(pair[1])}
        for key, pair in zip(keys, pairwise(SIZES), strict=True)
    ]


def features(params, inputs):
    hidden = {}
    for index, layer in enumerate(params[:-1], 1):
        inputs = hidden[f"dense{index}"] = jax.nn.relu(inputs @ layer["kernel"] + layer["bias"])
    return hidden


def model(params, inputs):
    last = list(features(params, inputs).values())[-1]
    return last @ params[-1]["kernel"] + params[-1]["bias"]


@jax.jit
def new_task(key):
    """Sparse positive inputs, like the pixels of digits, with random labels."""
    value_key, where_key, label_key = jax.random.split(key, 3)
    shape = (SAMPLES, SIZES[0])
    inputs = jnp.where(jax.random.bernoulli(where_key, 0.3, shape), jax.random.uniform(value_key, shape), 0.0)
    return inputs, jax.random.randint(label_key, (SAMPLES,), 0, SIZES[-1])


loss = diagnostics.task_loss(model, "cross_entropy")


@jax.jit
def learn_one_by_one(params, data, indices, learning_rate):
    def step(params, index):
        sample = jax.tree.map(lambda part: part[index][None], data)
        gradient = jax.grad(loss)(params, sample)
        return jax.tree.map(lambda w, g: w - learning_rate * g, params, gradient), None

    return jax.lax.scan(step, params, indices)[0]


@jax.jit
def learn_in_full(params, data, learning_rate, steps):
    def step(_, params):
        return jax.tree.map(lambda w, g: w - learning_rate * g, params, jax.grad(loss)(params, data))

    return jax.lax.fori_loop(0, steps, step, params)


def main(out=None, *, tasks=10, steps_per_task=4000, task_rate=0.1, learning_rate=0.1, steps=4000, order=60, seed=0):
    keys = jax.random.split(jax.random.key(seed), tasks + 3)
    fresh = init(keys[0])
    worn = fresh
    for key in keys[3:]:
        task_key, order_key = jax.random.split(key)
        indices = jax.random.randint(order_key, (steps_per_task,), 0, SAMPLES)
        worn = learn_one_by_one(worn, new_task(task_key), indices, task_rate)

    inputs, labels = data = new_task(keys[1])
    networks = {"fresh network": fresh, f"after {tasks} tasks": worn}
    reports, reached = {}, {}
    for name, params in networks.items():
        reports[name] = diagnostics.plasticity_report(
            model,
            "cross_entropy",
            params,
            data,
            diagnostics.StepBudget(learning_rate, steps),
            key=keys[2],
            features=features,
            effort=dataclasses.replace(diagnostics.FULL, order=order, residual_order=order),
            fresh=init,
        )
        trained = learn_in_full(params, data, learning_rate, steps)
        reached[name] = float(jnp.mean(jnp.argmax(model(trained, inputs), axis=1) == labels))
        print(f"=== {name}: {reached[name]:.0%} of the new labels learned in {steps} steps ===")
        print(reports[name], end="\n\n")
    if out is not None:
        draw(out, reports, reached)
    return reports, reached


def draw(out, reports, reached):
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(reports), 3, figsize=(15, 8.5), layout="constrained")
    for axes, (name, report) in zip(rows, reports.items(), strict=True):
        report.plot(axes)
        axes[0].set_title(f"{name}: spectrum")
        axes[1].set_title(f"{name}: layers")
        axes[2].set_title(f"{report.verdict}\n(training then reached {reached[name]:.0%} accuracy)")
    low = min(axes[0].get_xlim()[0] for axes in rows)
    high = max(axes[0].get_xlim()[1] for axes in rows)
    for axes in rows:
        axes[0].set_xlim(low, high)
    figure.savefig(out, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="collapse.png", help="where to save the figure")
    parser.add_argument("--tasks", type=int, default=10, help="number of tasks before the diagnosis")
    arguments = parser.parse_args()
    main(arguments.out, tasks=arguments.tasks)
