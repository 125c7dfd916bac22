"""Public operations in programs for GPUs, lowered on a machine without one."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import plastax
import plastax_diagnostics as diagnostics
import plastax_kernels as kernels
from plastax_diagnostics._spectrum import lanczos
from plastax_kernels import _backend


@pytest.fixture(autouse=True)
def capability(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    monkeypatch.delenv("PLASTAX_KERNELS_BACKEND", raising=False)
    # A trace that was cached under another environment must not answer, not even one of a function further inside.
    jax.clear_caches()


def custom_calls(function, *shapes, platform="cuda"):
    """How many Triton kernels there are in the program of a function for a platform."""
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) if isinstance(shape, tuple) else shape for shape in shapes]
    fresh = jax.jit(lambda *arguments: function(*arguments))
    return fresh.trace(*operands).lower(lowering_platforms=(platform,)).as_text().count("@triton_kernel_call")


def summed(function):
    return lambda *arguments: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(function(*arguments)))


def rank(features):
    return plastax.effective_rank(features)


triton_rank = partial(kernels.effective_rank_and_gradient, backend="triton")


def gram_rank(matrix):
    return kernels.rank_from_gram(matrix, cut=1e-3)[0]


LAYER = ((7, 5), (3, 7, 5), (5, 4), (3, 5, 4))
FORWARD = (*LAYER, (4,), (3, 4))
BACKWARD = (*LAYER, (7, 4), (7, 4), (3, 7, 4))


def batched(shapes):
    return tuple((2, *shape) for shape in shapes)


def hvp(*leaves):
    pairs = list(zip(leaves[0:6:2], leaves[1:6:2], strict=True))
    vectors = list(zip(leaves[6:12:2], leaves[7:12:2], strict=True))
    return kernels.mlp_hvp(pairs, (leaves[12], leaves[13]), vectors, loss="squared_error")


WEIGHTS = ((5, 6), (6,), (6, 6), (6,), (6, 2), (2,))
HVP = (*WEIGHTS, *((3, *shape) for shape in WEIGHTS), (9, 5), (9, 2))

L2_ER = plastax.l2_er(lambda params, inputs: jax.nn.relu(inputs @ params), weight_decay=1e-3, er_weight=1e-3)


def l2_er_update(params, inputs):
    return L2_ER.update(jnp.zeros_like(params), L2_ER.init(params), params, inputs=inputs)[0]


def spectrum_program(kind, activation=jax.nn.relu):
    """What `spectrum` compiles: Lanczos from several probes at once, with its loop."""

    def model(params, inputs):
        for kernel, bias in params[:-1]:
            inputs = activation(inputs @ kernel + bias)
        return inputs @ params[-1][0] + params[-1][1]

    def advance(*leaves):
        *weights, inputs, targets, vectors = leaves
        params, data = list(zip(weights[::2], weights[1::2], strict=True)), (inputs, targets)
        if kind == "hessian":
            operator = diagnostics.hessian(
                diagnostics.task_loss(model, "squared_error"), params, diagnostics.Samples(data, chunk=4)
            )
        else:
            operator = diagnostics.ggn(model, "squared_error", params, diagnostics.Samples(data, chunk=4))
        probes = [lanczos._begin(vector, 3)[0] for vector in vectors]
        return [probe.diagonal for probe in lanczos._advance((operator, jnp.asarray(3)), probes)]

    return advance


SPECTRUM = (*WEIGHTS, (9, 5), (9, 2), (3, 92))

PROGRAMS = {
    "gram": (kernels.gram, ((9, 5),), 1),
    "gram, masked": (kernels.gram, ((9, 5), jax.ShapeDtypeStruct((9,), bool)), 1),
    "gram, grad": (jax.value_and_grad(summed(kernels.gram)), ((9, 5),), 1),
    "gram, vmap": (jax.vmap(kernels.gram), ((3, 9, 5),), 1),
    "gram, vmap of grad": (jax.vmap(jax.value_and_grad(summed(kernels.gram))), ((3, 9, 5),), 1),
    "rank from gram": (gram_rank, ((5, 5),), 1),
    "rank from gram, grad": (jax.grad(gram_rank), ((5, 5),), 1),
    "rank from gram, vmap of grad": (jax.vmap(jax.grad(gram_rank)), ((3, 5, 5),), 1),
    "rank from gram, too large": (gram_rank, ((65, 65),), 0),
    # In float64, which the Triton path does not have, unless it is asked for.
    "effective rank": (jax.grad(rank), ((9, 5),), 0),
    "effective rank by Triton": (triton_rank, ((9, 5),), 2),
    "effective rank by Triton, vmap": (jax.vmap(triton_rank), ((3, 9, 5),), 2),
    "effective rank by Triton and eigh": (triton_rank, ((65, 90),), 1),
    "dense": (kernels.dense_relu_tangents, FORWARD, 1),
    "dense, vmap": (jax.vmap(kernels.dense_relu_tangents), batched(FORWARD), 1),
    "dense, partial vmap": (
        jax.vmap(kernels.dense_relu_tangents, (None, 0, None, 0, None, None)),
        tuple((2, *shape) if place in (1, 3) else shape for place, shape in enumerate(FORWARD)),
        1,
    ),
    "dense, grad": (jax.value_and_grad(summed(kernels.dense_relu_tangents), 2), FORWARD, 1),
    "dense backward": (kernels.dense_relu_tangents_backward, BACKWARD, 2),
    "dense backward, vmap": (jax.vmap(kernels.dense_relu_tangents_backward), batched(BACKWARD), 2),
    "hvp": (hvp, HVP, 9),
    "hvp, vmap": (jax.vmap(hvp), batched(HVP), 9),
    # Samples come in whole chunks, in a loop, and a rest: two programs of the layers.
    "spectrum of hessian": (spectrum_program("hessian"), SPECTRUM, 18),
    "spectrum of ggn": (spectrum_program("ggn"), SPECTRUM, 6),
    "spectrum of another network": (spectrum_program("hessian", jnp.tanh), SPECTRUM, 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_custom_calls_for_cuda_and_none_for_cpu(name):
    function, shapes, expected = PROGRAMS[name]
    assert custom_calls(function, *shapes) == expected
    if "by Triton" not in name:
        assert custom_calls(function, *shapes, platform="cpu") == 0


def lowered(function, *shapes, platform):
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function).trace(*operands).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("rocm", [False, True])
def test_effective_rank_on_gpus_is_float64_with_the_cut_of_cpus(rocm):
    programs = {
        platform: lowered(l2_er_update, (5, 6), (9, 5), platform=platform)
        for platform in ("cpu", "rocm" if rocm else "cuda")
    }
    for text in programs.values():
        (call,) = (line for line in text.splitlines() if "custom_call" in line and "syevd" in line)
        assert "tensor<6x6xf64>" in call
        # Singular values are compared with a share of the largest.
        assert "dense<9.9999999999999995E-7> : tensor<f64>" in text
        assert "tensor<6x9xf64>" in text  # The product that makes the Gram matrix.


def test_batches_of_decompositions_are_single_calls_on_cpu():
    # Batched calls side by side can wait for each other forever there.
    for function, shape in ((jax.vmap(gram_rank), (3, 5, 5)), (jax.vmap(jax.grad(rank)), (3, 9, 5))):
        text = lowered(function, shape, platform="cpu")
        (call,) = (line for line in text.splitlines() if "custom_call" in line and "syevd" in line)
        assert "tensor<5x5x" in call
        assert "tensor<3x5x5x" not in call


def test_batches_of_decompositions_are_one_call_on_gpus():
    key = jax.random.key(0)
    sketch = partial(plastax.sketched_effective_rank, size=4, key=key)
    bounds = partial(plastax.effective_rank_bounds, size=4, key=key)
    for function, shape, solver, number in (
        (jax.grad(summed(plastax.effective_rank)), (30, 500, 512), "syevd", 1),
        (jax.vmap(jax.grad(rank)), (30, 500, 512), "syevd", 1),
        (jax.vmap(sketch), (3, 9, 8), "geqrf", 2),  # Tall and wide: the calls that are alike share a function.
        (jax.vmap(bounds), (3, 9, 8), "gesvd", 1),
    ):
        text = lowered(function, shape, platform="cuda")
        assert "stablehlo.while" not in text
        assert sum("custom_call" in line and solver in line for line in text.splitlines()) == number


@pytest.mark.parametrize("capability", ["90", "100"])
def test_other_capabilities_lower_too(monkeypatch, capability):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", capability)
    assert custom_calls(triton_rank, (9, 5)) == 2


def test_the_argument_and_the_environment_choose(monkeypatch):
    assert custom_calls(partial(kernels.gram, backend="xla"), (9, 5)) == 0
    assert custom_calls(partial(kernels.gram, backend="triton"), (1100, 1100)) == 1  # "auto" leaves this to XLA.
    monkeypatch.setenv("PLASTAX_KERNELS_BACKEND", "xla")
    assert custom_calls(kernels.gram, (9, 5)) == 0
    assert custom_calls(partial(kernels.gram, backend="triton"), (9, 5)) == 1
    monkeypatch.setenv("PLASTAX_KERNELS_BACKEND", "cuda")
    with pytest.raises(ValueError, match=r"PLASTAX_KERNELS_BACKEND must be one of .* got 'cuda'"):
        kernels.gram(jnp.ones((2, 2)))


def test_without_a_gpu_auto_stays_with_xla_and_triton_says_so(monkeypatch):
    monkeypatch.delenv("PLASTAX_CUDA_CAPABILITY")
    assert custom_calls(kernels.gram, (9, 5)) == 0
    with pytest.raises(ValueError, match=r"found no NVIDIA GPU.*PLASTAX_CUDA_CAPABILITY=80"):
        kernels.gram(jnp.ones((2, 2)), backend="triton")
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "8.0")
    with pytest.raises(ValueError, match=r"a number like 80.*got '8\.0'"):
        kernels.gram(jnp.ones((2, 2)))


def test_what_triton_cannot_do_is_named():
    with pytest.raises(ValueError, match=r"side 1 to 64, got float32\(65, 65\)"):
        kernels.rank_from_gram(jnp.eye(65), cut=1e-3, backend="triton")


def test_a_missing_triton_names_the_extra(monkeypatch):
    monkeypatch.setattr(_backend.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"plastax\[gpu\]"):
        kernels.gram(jnp.ones((2, 2)), backend="triton")
    assert custom_calls(kernels.gram, (9, 5)) == 0


def test_triton_is_not_imported_before_it_is_needed():
    program = (
        "import sys, jax.numpy as jnp, plastax_kernels as kernels\n"
        "kernels.effective_rank_and_gradient(jnp.ones((3, 2)))\n"
        "kernels.gram(jnp.ones((3, 2)))\n"
        "assert not {'triton', 'jax_triton'} & set(sys.modules)\n"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
