"""Products with the curvature of dense ReLU networks by the kernels of `plastax_kernels`, several at once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._programs.relu_network import ReluNetwork, find_relu_network
from .base import CurvatureOperator, Multiplier
from .losses import CrossEntropy, OutputLoss, SquaredError
from .samples import Samples


_NAMES = {CrossEntropy: "cross_entropy", SquaredError: "squared_error"}


def relu_network_of(operator: CurvatureOperator, model: Callable, loss: OutputLoss) -> ReluNetwork | None:
    """The network of an operator that the kernels support; `None` for all others.

    They support dense ReLU networks in float32 with one of the named losses, all parameters together, on one device.
    """
    if type(loss) not in _NAMES or operator.where is not None or operator.samples.mesh is not None:
        return None
    inputs, targets = operator.samples.first()
    network = find_relu_network(model, operator.params, inputs)
    if network is None:
        return None
    compared = jax.eval_shape(lambda targets: compared_with_outputs(loss, network, targets), targets)
    return network if compared.shape == network.outputs.shape else None


def relu_multiplier(
    kernel: Callable,
    operator: CurvatureOperator,
    network: ReluNetwork,
    loss: OutputLoss,
    targets: Float[Array, "samples outputs"],
    weight: Float[Array, ""],
) -> Multiplier:
    """Products by `plastax_kernels.mlp_hvp` or `mlp_ggnvp`, chunk by chunk.

    **Arguments:**

    - `kernel`: one of the two.
    - `operator`, `loss`: as in `relu_network_of`.
    - `network`: its result.
    - `targets`: see `compared_with_outputs`.
    - `weight`: of each sample.
    """

    def of_chunk(params, vectors, weight, data):
        inputs, targets = data
        batch = (inputs.reshape(inputs.shape[0], -1), targets)
        weights = jnp.broadcast_to(weight, inputs.shape[:1])
        pairs = kernel(
            network.pairs(params), batch, network.pairs(vectors), loss=_NAMES[type(loss)], sample_weights=weights
        )
        return network.tree(pairs, like=vectors)

    samples = Samples((operator.samples.data[0], targets), operator.samples.chunk, None)

    def multiply(vectors: PyTree) -> PyTree:
        return samples.sum(of_chunk, operator.params, vectors, weight)

    return multiply


def compared_with_outputs(loss: OutputLoss, network: ReluNetwork, targets: Array) -> Array:
    """Targets as the loss compares them with outputs: classes become probabilities."""
    if isinstance(loss, CrossEntropy):
        return CrossEntropy.one_hot(network.outputs, targets)
    return targets.astype(network.outputs.dtype)
