"""The PTX inside of lowered programs, through the assembler of CUDA 12.9 that comes with Triton."""

import re
import subprocess
from functools import partial

import jax
import pytest
from programs import lowered, ptx_of
from triton import knobs

import plastax_kernels as kernels
from plastax_kernels import _triton_call


FUNCTIONS = {
    "small": (partial(kernels.effective_rank_and_gradient, backend="triton"), (30, 500, 40), 2),
    "side 128": (partial(kernels.effective_rank_and_gradient, backend="triton"), (30, 100, 1000), 4),
    "gram": (partial(kernels.gram, backend="triton"), (1200, 128), 1),
}


@pytest.fixture(autouse=True)
def clear_caches():
    # A trace for another GPU must not answer.
    jax.clear_caches()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100, 120])
def test_the_assembler_takes_it(monkeypatch, tmp_path, name, capability):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", str(capability))
    function, shape, number = FUNCTIONS[name]
    texts = ptx_of(lowered(function, shape))
    assert len(texts) == number
    assert (
        "release 12.9" in subprocess.run([knobs.nvidia.ptxas.path, "--version"], capture_output=True, text=True).stdout
    )
    for text in texts:
        version = re.search(r"\.version (\d+)\.(\d+)", text)
        # JAX takes CUDA 12.6, whose assembler reads PTX up to 8.5; 12.8, the first for Blackwell, up to 8.7.
        assert int(version[1]) * 10 + int(version[2]) <= (85 if capability < 100 else 87)
        target = re.search(r"\.target (sm_\w+)", text)[1]
        assert target.removesuffix("a") == f"sm_{capability}"
        source = tmp_path / "kernel.ptx"
        source.write_text(text)
        command = [knobs.nvidia.ptxas.path, "-v", f"-arch={target}", str(source), "-o", str(tmp_path / "kernel.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr


def test_newer_ptx_would_be_refused(monkeypatch, tmp_path):
    """Why the version is lowered: Triton's own choice for Hopper is for the assembler of CUDA 13."""
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "90")
    monkeypatch.setattr(_triton_call, "ptx_version", lambda _: None)
    # Sizes that no other test has: jax-triton keeps what it has compiled.
    (text,) = ptx_of(lowered(partial(kernels.gram, backend="triton"), (1199, 127)))
    source = tmp_path / "kernel.ptx"
    source.write_text(text)
    command = [knobs.nvidia.ptxas.path, "-arch=sm_90a", str(source), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Unsupported .version" in done.stderr


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("shape", "masked"), [((100, 1000), False), ((1200, 128), True)])
def test_global_memory_is_copied_16_bytes_at_a_time(monkeypatch, capability, shape, masked):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", str(capability))
    mask = (jax.ShapeDtypeStruct(shape[:1], bool),) if masked else ()
    (text,) = ptx_of(lowered(partial(kernels.gram, backend="triton"), shape, *mask))
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global [^;]*?, (0x[0-9a-f]+|\d+)[,;]", text)
    assert copies
    assert {int(size, 0) for size in copies} == {16}
    for text in ptx_of(lowered(partial(kernels.effective_rank_and_gradient, backend="triton"), shape))[1:]:
        assert "ld.global.v4" in text
        assert "st.global.v4" in text
        assert not re.search(r"ld\.global\.[bf]32", text)
