"""The networks of `plastax bench report` and `plastax bench monitor`, with random rows and plain SGD."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..config import configure


NETWORKS: dict[str, tuple[str, str, tuple[int, ...], int]] = {
    "mlp-demo": ("permuted-mnist", "laptop", (784,), 10),
    "mlp-paper": ("permuted-mnist", "paper", (784,), 10),
    "convnet-laptop": ("continual-imagenet", "laptop", (32, 32, 3), 2),
    "convnet-paper": ("continual-imagenet", "paper", (32, 32, 3), 2),
}
"""Problem, preset, shape of an input, and number of outputs."""

STEPS = 100
"""Steps of plain SGD that are timed in a row."""


@dataclass(frozen=True)
class Network:
    """A new network.

    **Arguments:**

    - `shape`, `outputs`: of an input, and the number of outputs.
    - `batch`: the batch size of its problem.
    - `params`, `model`, `loss`: its parameters, the model as a function, and cross-entropy of parameters and a batch.
    """

    shape: tuple[int, ...]
    outputs: int
    batch: int
    params: Any
    model: Callable
    loss: Callable

    def rows(self, seed: int, *size: int) -> tuple[Any, Any]:
        """Random inputs and classes."""
        import jax

        inputs, labels = jax.random.split(jax.random.key(seed))
        return jax.random.uniform(inputs, (*size, *self.shape)), jax.random.randint(labels, size, 0, self.outputs)

    def sgd(self) -> Callable[[Any, tuple[Any, Any]], Any]:
        """One compiled program of plain SGD steps: from parameters and batches to parameters."""
        import jax

        @jax.jit
        def train(params, batches):
            def step(params, batch):
                slopes = jax.grad(self.loss)(params, batch)
                return jax.tree.map(lambda leaf, slope: leaf - 0.01 * slope, params, slopes), None

            return jax.lax.scan(step, params, batches)[0]

        return train


def new_network(name: str, width: int | None) -> Network:
    """One of `NETWORKS`, with another width if there is one."""
    import equinox as eqx
    import jax

    import plastax_diagnostics as diagnostics

    problem, preset, shape, outputs = NETWORKS[name]
    config = configure(problem, preset, "bp", **({} if width is None else {"width": width}))
    network = config.network.make(shape, outputs, {}, jax.random.key(0))
    model = diagnostics.apply_model(network, network.init_state(jax.random.key(1)))
    loss = diagnostics.task_loss(model, "cross_entropy")
    params = eqx.filter(network, eqx.is_inexact_array)
    return Network(shape, outputs, config.settings["batch_size"], params, model, loss)
