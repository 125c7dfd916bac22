"""A training step of the convolutional networks, in the runner, in Flax linen with optax, and in PyTorch, batch 100.

Run with `plastax bench convolutions`. The runner trains in its own compiled loop. The others take the same step (SGD
with momentum on the cross-entropy) in a Python loop: Flax's is jitted, PyTorch's is eager, with images in the memory
format channels-last. All use all cores that this process may use. Images are random, so no data is needed. PyTorch is
in the extra `bench`; without it the table has no row for it.

`share of matmul` is the share of the speed of one large matrix product that a step attains, counting three times the
operations of the forward pass. `--memory` also runs each program in a process of its own, for its peak memory.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._errors import UsageError
from .._memory import peak_bytes
from ..config import RunConfig, configure
from ..problems.catalog import ImageSettings
from ..problems.load import make_problem
from ..training.members import Member
from ..training.replicas import Replicas
from ..training.task import Trainer
from .output import Conditions, show
from .paper_scale import noise
from .parser import bench_parser
from .timing import interleaved, medians, ratio


BATCH = 100
RUNNER, FLAX, TORCH = "plastax, in its loop", "Flax linen and optax, jitted", "PyTorch, eager"
NETWORKS = {
    "convnet-laptop": ("continual-imagenet", "laptop"),
    "convnet": ("continual-imagenet", "paper"),
    "resnet18": ("incremental-cifar", "paper"),
}
Train = Callable[[], Any]


def config_of(name: str, **sizes: Any) -> RunConfig:
    """The configuration of a network's problem, with batches of 100."""
    problem, preset = NETWORKS[name]
    return configure(problem, preset, "bp", batch_size=BATCH, epochs=1, **sizes)


class Runner:
    """The runner's own program. It continues at each call."""

    def __init__(self, config: RunConfig, steps: int):
        assert isinstance(config.problem, ImageSettings)
        problem, data = make_problem(config.problem, noise(config.problem.dataset))
        self.programs = Replicas(Trainer(problem, config), data, [Member(0, {})])
        self.learner = self.programs.init(0)
        if steps > (most := self.programs.trainer.steps_in(0)):
            raise UsageError(f"--steps must be at most {most}, the steps of a task, got {steps}")
        self.steps, self.outputs = steps, problem.outputs

    def __call__(self) -> Any:
        """Trains for the steps."""
        block, nothing = self.programs.trainer.block, self.programs.nothing()
        if self.steps % block:
            self.learner, totals = self.programs.train_rest(self.learner, nothing, 0, 0, self.steps)
        else:
            self.learner, totals = self.programs.train(self.learner, nothing, 0, 0, self.steps // block)
        return self.learner, totals

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.learner.params))


def linen_network(config: RunConfig, outputs: int) -> Any:
    """The network in Flax linen."""
    from ._linen_networks import LinenConvNet, LinenResNet18

    own = config.settings
    if config.network.name == "resnet18":
        return LinenResNet18(own["width"], own["dense"], outputs)
    return LinenConvNet(own["channels"], own["kernel_sizes"], own["dense"], outputs)


class Flax:
    """The same steps in Flax linen and optax, in a Python loop."""

    def __init__(self, config: RunConfig, steps: int, outputs: int):
        network = linen_network(config, outputs)
        optimizer = optax.sgd(config.optimizer.learning_rate, momentum=config.settings["momentum"])
        variables = network.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
        self.params, state = variables["params"], {k: v for k, v in variables.items() if k != "params"}
        self.carry = self.params, state, optimizer.init(self.params)
        self.batches = [jax.tree.map(jnp.asarray, batch) for batch in random_batches(steps, outputs)]

        def loss(params, state, inputs, labels):
            logits, state = network.apply({"params": params, **state}, inputs, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), state

        def step(carry, inputs, labels):
            params, state, opt_state = carry
            gradients, state = jax.grad(loss, has_aux=True)(params, state, inputs, labels)
            updates, opt_state = optimizer.update(gradients, opt_state, params)
            return optax.apply_updates(params, updates), state, opt_state

        self.step = jax.jit(step)
        costs: Any = jax.jit(loss).lower(self.params, state, *self.batches[0]).cost_analysis()
        self.forward_operations = float(costs["flops"])

    def __call__(self) -> Any:
        """Trains for the steps."""
        for batch in self.batches:
            self.carry = self.step(self.carry, *batch)
        return self.carry

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))


class Torch:
    """The same steps in PyTorch."""

    def __init__(self, config: RunConfig, steps: int, outputs: int):
        import torch  # pyright: ignore[reportMissingImports]

        from ._torch_networks import torch_convnet, torch_resnet18

        torch.set_num_threads(cores())
        own = config.settings
        if config.network.name == "resnet18":
            network: Any = torch_resnet18(3, own["width"], own["dense"], outputs)
        else:
            network = torch_convnet((32, 32, 3), own["channels"], own["kernel_sizes"], own["dense"], outputs)
        self.network = network.to(memory_format=torch.channels_last).train()
        rate, momentum = config.optimizer.learning_rate, own["momentum"]
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=rate, momentum=momentum)
        self.loss = torch.nn.functional.cross_entropy
        self.batches = [
            (torch.from_numpy(inputs).permute(0, 3, 1, 2), torch.from_numpy(labels).long())
            for inputs, labels in random_batches(steps, outputs)
        ]

    def __call__(self) -> None:
        """Trains for the steps."""
        for inputs, labels in self.batches:
            self.optimizer.zero_grad(set_to_none=True)
            self.loss(self.network(inputs), labels).backward()
            self.optimizer.step()

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.network.parameters())


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def random_batches(steps: int, outputs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and labels, one batch for each step."""
    draw = np.random.default_rng(0)
    for _ in range(steps):
        yield draw.normal(size=(BATCH, 32, 32, 3)).astype(np.float32), draw.integers(0, outputs, BATCH, np.int32)


def programs_of(config: RunConfig, steps: int) -> dict[str, Any]:
    """All programs that can run here, which must be of one network."""
    runner = Runner(config, steps)
    programs = {RUNNER: runner, FLAX: Flax(config, steps, runner.outputs)}
    if find_spec("torch") is not None:
        programs[TORCH] = Torch(config, steps, runner.outputs)
    counts = {name: program.parameters for name, program in programs.items()}
    if len(set(counts.values())) != 1:
        raise AssertionError(f"the networks differ in their numbers of parameters: {counts}")
    return programs


def matmul_speed(size: int = 2048) -> float:
    """Operations per second of a large matrix product, the best of some."""
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    seconds = interleaved({"matmul": lambda: _matmul(matrix)}, rounds=5)["matmul"]
    return 2 * size**3 / min(seconds)


@jax.jit
def _matmul(matrix):
    return matrix @ matrix


def peak_memory(name: str, steps: int, program: str) -> float:
    """GiB of a process that only runs one of the programs."""
    config = config_of(name)
    if program == RUNNER:
        train: Train = Runner(config, steps)
    else:
        outputs = 2 if config.network.name == "convnet" else 100
        train = (Flax if program == FLAX else Torch)(config, steps, outputs)
    for _ in range(2):
        jax.block_until_ready(train())
    return peak_bytes() / 2**30


def measure(name: str, steps: int, rounds: int, *, memory: bool) -> list[dict[str, Any]]:
    """The rows of a table."""
    programs = programs_of(config_of(name), steps)
    speed, operations = matmul_speed(), 3 * programs[FLAX].forward_operations
    seconds = interleaved(programs, rounds=rounds)
    rows = []
    for program, each in medians(seconds).items():
        row = {
            "program": program,
            "ms per step": 1e3 * each / steps,
            "x plastax": ratio(seconds, program, RUNNER),
            "share of matmul": f"{operations * steps / each / speed:.0%}",
        }
        if memory:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row["peak GiB"] = pool.apply(peak_memory, (name, steps, program))
        rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Prints a table for each network."""
    parser = bench_parser("convolutions", __doc__)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--steps", type=int, default=10, help="steps in a row")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take medians over")
    parser.add_argument("--memory", action="store_true", help="also measure the peak memory of each program")
    options = parser.parse_args(arguments)
    for name in options.networks:
        conditions = Conditions()
        rows = measure(name, options.steps, options.rounds, memory=options.memory)
        problem, preset = NETWORKS[name]
        title = f"{name} ({problem}, preset {preset}), batch {BATCH}: a training step, {options.rounds} rounds"
        packages = ("jax", "jaxlib", "flax", "optax", "torch")
        show(title, rows, conditions, as_json=options.json, packages=packages)
