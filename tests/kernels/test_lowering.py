"""Public operations in programs for GPUs, lowered on a machine without one."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec
from programs import custom_calls, lowered, solver_calls

import plastax
import plastax_kernels as kernels


@pytest.fixture(autouse=True)
def capability(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    monkeypatch.delenv("PLASTAX_KERNELS_BACKEND", raising=False)
    # A trace that was cached under another environment must not answer, not even one of a function further inside.
    jax.clear_caches()


def summed(function):
    return lambda *arguments: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(function(*arguments)))


def rank(features):
    return plastax.effective_rank(features)


triton_gram = partial(kernels.gram, backend="triton")
triton_rank = partial(kernels.effective_rank_and_gradient, backend="triton")


def gram_rank(matrix):
    return kernels.rank_from_gram(matrix, cut=1e-3)[0]


WEIGHTS = ((5, 6), (6,), (6, 6), (6,), (6, 2), (2,))
HVP = (*WEIGHTS, *((3, *shape) for shape in WEIGHTS), (9, 5), (9, 2))


def hvp(*leaves, precision="float32"):
    pairs = list(zip(leaves[0:6:2], leaves[1:6:2], strict=True))
    vectors = list(zip(leaves[6:12:2], leaves[7:12:2], strict=True))
    return kernels.mlp_hvp(pairs, (leaves[12], leaves[13]), vectors, loss="squared_error", precision=precision)


L2_ER = plastax.l2_er(lambda params, inputs: jax.nn.relu(inputs @ params), weight_decay=1e-3, er_weight=1e-3)


def l2_er_update(params, inputs):
    return L2_ER.update(jnp.zeros_like(params), L2_ER.init(params), params, inputs=inputs)[0]


# Without measurements, "auto" takes Triton for batches of ranks up to side 128 alone.
PROGRAMS = {
    "gram": (kernels.gram, ((9, 5),), 0),
    "gram by Triton": (triton_gram, ((9, 5),), 1),
    "gram by Triton, masked": (triton_gram, ((9, 5), jax.ShapeDtypeStruct((9,), bool)), 1),
    "gram by Triton, grad": (jax.value_and_grad(summed(triton_gram)), ((9, 5),), 1),
    "gram by Triton, vmap of grad": (jax.vmap(jax.value_and_grad(summed(triton_gram))), ((3, 9, 5),), 1),
    "gram by Triton, more entries than an axis of the grid": (jax.vmap(triton_gram), ((70_000, 9, 5),), 1),
    "rank from gram": (gram_rank, ((5, 5),), 0),
    "rank from gram, batch": (gram_rank, ((8, 5, 5),), 1),
    "rank from gram, grad": (jax.grad(summed(gram_rank)), ((8, 5, 5),), 1),
    "rank from gram, vmap of grad": (jax.vmap(jax.grad(gram_rank)), ((8, 5, 5),), 1),
    "rank from gram, side 128": (gram_rank, ((8, 128, 128),), 3),
    "rank from gram, too large": (gram_rank, ((8, 129, 129),), 0),
    "effective rank": (jax.grad(rank), ((9, 5),), 0),
    "effective rank, vmap": (jax.vmap(jax.grad(rank)), ((8, 9, 5),), 1),
    "effective rank, nested vmap": (jax.vmap(jax.vmap(jax.grad(rank))), ((2, 4, 9, 5),), 1),
    "effective rank by Triton": (triton_rank, ((9, 5),), 2),
    "effective rank by Triton, bfloat16": (triton_rank, (jax.ShapeDtypeStruct((9, 5), jnp.bfloat16),), 2),
    "hvp": (hvp, HVP, 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_custom_calls_for_cuda_and_none_for_cpu(name):
    function, shapes, expected = PROGRAMS[name]
    assert custom_calls(function, *shapes) == expected
    if "by Triton" not in name:
        assert custom_calls(function, *shapes, platform="cpu") == 0


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm"])
def test_the_effective_rank_is_float64_with_one_cut(platform):
    text = lowered(l2_er_update, (5, 6), (9, 5), platforms=(platform,)).as_text()
    (call,) = solver_calls(text, "syevd")
    assert "tensor<6x6xf64>" in call
    # Singular values are compared with a share of the largest.
    assert "dense<9.9999999999999995E-7> : tensor<f64>" in text
    assert "tensor<6x9xf64>" in text  # The product that makes the Gram matrix.


def test_the_triton_path_is_float64_with_the_same_cut():
    text = lowered(triton_rank, (9, 5)).as_text()
    assert not solver_calls(text, "syevd")
    (call,) = solver_calls(text, "potrf")
    assert "tensor<1x5x5xf64>" in call or "tensor<5x5xf64>" in call
    assert "dense<9.9999999999999995E-7> : tensor<f64>" in text
    gram, _ = (line for line in text.splitlines() if "@triton_kernel_call" in line)
    assert "x5x5xf64>" in gram


def test_batches_of_decompositions_are_single_calls_on_cpu():
    # Batched calls side by side can wait for each other forever there.
    for function, shape in ((jax.vmap(gram_rank), (3, 5, 5)), (jax.vmap(jax.grad(rank)), (3, 9, 5))):
        (call,) = solver_calls(lowered(function, shape, platforms=("cpu",)).as_text(), "syevd")
        assert "tensor<5x5x" in call
        assert "tensor<3x5x5x" not in call


def test_batches_of_decompositions_are_one_call_on_gpus():
    key = jax.random.key(0)
    sketch = partial(plastax.sketched_effective_rank, size=4, key=key)
    bounds = partial(plastax.effective_rank_bounds, size=4, key=key)
    for function, shape, solver, number in (
        (jax.grad(summed(plastax.effective_rank)), (30, 500, 512), "syevd", 1),
        (jax.vmap(jax.grad(rank)), (30, 500, 512), "syevd", 1),
        (jax.vmap(triton_rank), (30, 60, 512), "potrf", 1),
        (jax.vmap(sketch), (3, 9, 8), "geqrf", 2),  # Tall and wide: the calls that are alike share a function.
        (jax.vmap(bounds), (3, 9, 8), "gesvd", 1),
    ):
        text = lowered(function, shape).as_text()
        assert "stablehlo.while" not in text
        assert len(solver_calls(text, solver)) == number


def mesh_of_one(kind):
    return jax.make_mesh((1,), ("seeds",), axis_types=(kind,))


# Side 128 is a loop, whose values must vary over devices from the start. Four devices: `devices/check_devices.py`.
@pytest.mark.parametrize(
    ("function", "shape"),
    [(triton_gram, (8, 9, 5)), (triton_rank, (8, 100, 120)), (kernels.effective_rank_and_gradient, (8, 100, 120))],
)
def test_inside_shard_map(function, shape):
    mesh = mesh_of_one(AxisType.Auto)
    spec = PartitionSpec("seeds")
    sharded = jax.shard_map(lambda x: jax.tree.leaves(function(x))[0], mesh=mesh, in_specs=spec, out_specs=spec)
    assert custom_calls(sharded, shape) > 0
    if function is kernels.effective_rank_and_gradient:
        assert custom_calls(sharded, shape, platform="cpu") == 0


@pytest.mark.parametrize("function", [triton_gram, triton_rank, kernels.effective_rank_and_gradient, gram_rank])
def test_on_meshes_with_explicit_axes(function):
    mesh = mesh_of_one(AxisType.Explicit)
    side = 9 if function is gram_rank else 5
    for spec in (PartitionSpec("seeds"), PartitionSpec(None, "seeds")):
        sharding = jax.sharding.NamedSharding(mesh, spec)
        with jax.set_mesh(mesh):
            assert custom_calls(function, jax.ShapeDtypeStruct((8, 9, side), jnp.float32, sharding=sharding)) > 0


@pytest.mark.parametrize("function", [triton_gram, kernels.effective_rank_and_gradient])
def test_export_for_cpu_and_cuda_together(function):
    operand = jax.ShapeDtypeStruct((8, 9, 5), jnp.float32)
    # A Triton call is not one that XLA promises to understand in later versions.
    checks = [jax.export.DisabledSafetyCheck.custom_call("triton_kernel_call")]
    platforms = ("cuda",) if function is triton_gram else ("cpu", "cuda")
    exported = jax.export.export(jax.jit(function), platforms=platforms, disabled_checks=checks)(operand)
    assert exported.mlir_module().count("@triton_kernel_call") == 1
    if "cpu" in platforms:
        features = jnp.asarray(np.random.default_rng(0).standard_normal((8, 9, 5)), jnp.float32)
        np.testing.assert_allclose(exported.call(features)[0], function(features)[0], rtol=1e-6)


def dots(text):
    """The shapes of the operands of all matrix products."""
    return [line.split(" : (")[1].split(") ->")[0] for line in text.splitlines() if "stablehlo.dot_general" in line]


def test_a_layer_of_an_hvp_is_six_wide_products():
    layer = kernels.DenseLayer(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in LAYER))
    forward = dots(jax.jit(kernels.dense_relu_tangents).lower(layer).as_text())
    # [x; x'_1 .. x'_3] W, and x [W'_1, W'_2, W'_3].
    assert sorted(forward) == ["tensor<28x5xf32>, tensor<5x4xf32>", "tensor<7x5xf32>, tensor<5x12xf32>"]
    outputs = (jax.ShapeDtypeStruct((7, 4), jnp.float32),) * 2
    tangents = jax.ShapeDtypeStruct((3, 7, 4), jnp.float32)

    def without_the_gradient_itself(*arguments):
        return kernels.dense_relu_tangents_backward(*arguments)._replace(weights=0)

    backward = jax.jit(without_the_gradient_itself).lower(layer, *outputs, tangents).compile().as_text()
    assert backward.count(" dot(") + backward.count("__onednn") + backward.count("custom_call_target=") == 4


LAYER = ((7, 5), (3, 7, 5), (5, 4), (3, 5, 4), (4,), (3, 4))


def test_the_preset_of_three_products_is_for_cuda_alone():
    split = lowered(partial(hvp, precision="tf32x3"), *HVP).as_text()
    assert "num_primitive_operations = 3" in split
    assert (
        "num_primitive_operations" not in lowered(partial(hvp, precision="tf32x3"), *HVP, platforms=("cpu",)).as_text()
    )
    assert "num_primitive_operations" not in lowered(hvp, *HVP).as_text()


def test_triton_is_not_imported_before_it_is_needed():
    program = (
        "import sys, jax.numpy as jnp, plastax_kernels as kernels\n"
        "kernels.effective_rank_and_gradient(jnp.ones((3, 2)))\n"
        "kernels.gram(jnp.ones((3, 2)))\n"
        "assert not {'triton', 'jax_triton'} & set(sys.modules)\n"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
