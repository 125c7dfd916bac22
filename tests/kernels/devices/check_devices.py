"""The operations on four devices: each works on its own part of the batch, and finds what one device finds.

`test_devices.py` runs this in a process with four CPU devices.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from programs import collectives, lowered, triton_calls
from spectra import assert_rank, draw

import plastax
import plastax_kernels as kernels


BATCH = draw(8, 9, 5)
MASK = np.random.default_rng(1).random((8, 9)) < 0.8


@pytest.fixture(autouse=True)
def four_devices(monkeypatch):
    assert jax.device_count() == 4
    monkeypatch.delenv("PLASTAX_KERNELS_BACKEND", raising=False)


def mesh_of(kind, *sizes):
    return jax.make_mesh(sizes, ("seeds", "samples")[: len(sizes)], axis_types=(kind,) * len(sizes))


def spread(mesh, array, *axes):
    return jax.device_put(array, NamedSharding(mesh, P(*axes)))


def rank_of_gram(features):
    return kernels.rank_from_gram(kernels.gram(features), cut=1e-3)


def sketch(features):
    return jax.vmap(partial(plastax.sketched_effective_rank, size=3, key=jax.random.key(0)))(features)


OPERATIONS = {
    "effective rank": kernels.effective_rank_and_gradient,
    "gradient": jax.vmap(jax.value_and_grad(plastax.effective_rank)),
    "rank from gram": rank_of_gram,
    "sketch": sketch,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_automatic_axes_split_the_batch_and_gather_nothing(name):
    features = spread(mesh_of(AxisType.Auto, 4), BATCH, "seeds")
    program = jax.jit(OPERATIONS[name]).lower(features).compile()
    assert not collectives(program.as_text())
    for found, expected in zip(jax.tree.leaves(program(features)), results_of_one_device(name), strict=True):
        assert found.sharding.spec[0] == "seeds"
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def results_of_one_device(name):
    return jax.tree.leaves(jax.jit(OPERATIONS[name])(jnp.asarray(BATCH)))


def test_two_automatic_axes_and_two_batch_axes_with_a_mask():
    mesh = mesh_of(AxisType.Auto, 2, 2)
    features, mask = (spread(mesh, x.reshape(2, 4, *x.shape[1:]), "samples", "seeds") for x in (BATCH, MASK))
    program = jax.jit(kernels.effective_rank_and_gradient).lower(features, mask).compile()
    assert not collectives(program.as_text())
    rank, gradient = map(np.asarray, program(features, mask))
    for entry in range(8):
        place, kept = divmod(entry, 4), MASK[entry]
        assert_rank((rank[place], gradient[place][kept]), BATCH[entry][kept])


def test_samples_on_different_devices_are_summed_and_not_gathered():
    features = spread(mesh_of(AxisType.Auto, 2, 2), draw(2, 48, 5), "seeds", "samples")
    program = jax.jit(kernels.effective_rank_and_gradient).lower(features).compile()
    # The Gram matrix of each device's samples.
    assert collectives(program.as_text()) == [("all-reduce", "f64[1,5,5]")]
    rank, gradient = program(features)
    for entry in range(2):
        assert_rank((rank[entry], gradient[entry]), np.asarray(features)[entry])


def test_a_mesh_with_an_explicit_and_an_automatic_axis():
    mesh = jax.make_mesh((2, 2), ("seeds", "samples"), axis_types=(AxisType.Explicit, AxisType.Auto))
    for axis in mesh.axis_names:
        with jax.set_mesh(mesh):
            features = spread(mesh, BATCH, axis)
            program = jax.jit(kernels.effective_rank_and_gradient).lower(features).compile()
        assert not collectives(program.as_text())
        np.testing.assert_allclose(program(features)[1], results_of_one_device("effective rank")[1], atol=1e-5)


def test_the_partitioner_before_shardy():
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        features = spread(mesh_of(AxisType.Auto, 4), BATCH, "seeds")
        program = jax.jit(lambda x: kernels.effective_rank_and_gradient(x)).lower(features).compile()
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert not collectives(program.as_text())


@pytest.mark.parametrize("how", ["explicit", "shard_map"])
def test_explicit_axes_and_shard_map_give_the_same(how):
    mesh = mesh_of(AxisType.Explicit if how == "explicit" else AxisType.Auto, 4)
    with jax.set_mesh(mesh):
        for name in ("effective rank", "rank from gram"):
            function = OPERATIONS[name]
            if how == "shard_map":
                function = jax.shard_map(function, in_specs=P("seeds"), out_specs=P("seeds"))
            program = jax.jit(function).lower(spread(mesh, BATCH, "seeds")).compile()
            assert not collectives(program.as_text())
            found = program(spread(mesh, BATCH, "seeds"))
            for leaf, expected in zip(jax.tree.leaves(found), results_of_one_device(name), strict=True):
                assert leaf.sharding.spec[0] == "seeds"
                np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def an_a100(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    jax.clear_caches()


# The batch of 32 is 8 for each of the devices. Side 128 is a loop of several calls.
FOR_CUDA = {
    "auto": (kernels.effective_rank_and_gradient, (32, 40, 20), ["f32[8,32,32]"], "potrf"),
    "triton": (
        partial(kernels.effective_rank_and_gradient, backend="triton"),
        (32, 40, 20),
        ["f32[8,32,32]", "f64[1,8,20,20]"],
        "potrf",
    ),
    "triton, side 128": (
        partial(kernels.effective_rank_and_gradient, backend="triton"),
        (32, 100, 240),
        [*["f32[8,128,128]"] * 3, "f64[1,8,100,100]"],
        "potrf",
    ),
    "xla": (partial(kernels.effective_rank_and_gradient, backend="xla"), (32, 40, 20), [], "syevd"),
}


@pytest.mark.usefixtures("an_a100")
@pytest.mark.parametrize("name", FOR_CUDA)
def test_programs_for_cuda_on_automatic_axes(name, tmp_path):
    """The partitioner of XLA runs on the program for CUDA; only then does the compiler for CPUs refuse its calls."""
    function, shape, calls, solver = FOR_CUDA[name]
    sharding = NamedSharding(mesh_of(AxisType.Auto, 4), P("seeds"))
    program = lowered(function, jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding))
    options = {"xla_dump_to": str(tmp_path), "xla_dump_hlo_pass_re": "spmd.*"}
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"triton_kernel_call|cusolver"):
        program.compile(compiler_options=options)
    (path,) = tmp_path.glob("*after_spmd-partitioning*.txt")
    text = path.read_text()
    assert not collectives(text)
    assert sorted(triton_calls(text)) == calls
    (solve,) = (line for line in text.splitlines() if "custom_call_target" in line and solver in line)
    side = min(shape[1:])
    assert f"f64[8,{side},{side}]" in solve


@pytest.mark.usefixtures("an_a100")
@pytest.mark.parametrize("how", ["explicit", "shard_map"])
def test_programs_for_cuda_on_explicit_axes_and_in_shard_map(how):
    mesh = mesh_of(AxisType.Explicit if how == "explicit" else AxisType.Auto, 4)
    with jax.set_mesh(mesh):
        for function, number in ((kernels.effective_rank_and_gradient, 1), (FOR_CUDA["triton"][0], 2)):
            if how == "shard_map":
                function = jax.shard_map(function, in_specs=P("seeds"), out_specs=P("seeds"))
            operand = jax.ShapeDtypeStruct((32, 40, 20), jnp.float32, sharding=NamedSharding(mesh, P("seeds")))
            text = lowered(function, operand).as_text()
            assert "all_gather" not in text
            calls = [line for line in text.splitlines() if "@triton_kernel_call" in line]
            assert len(calls) == number
            assert all("tensor<8x32x32xf32>" in line or "tensor<8x40x20xf32>" in line for line in calls)
