"""Our safetensors files hold what the library's hold, and hashed as they are written."""

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, load_file
from torch import Tensor

from counterpoint.nn.tensor_file import tensor_bytes, write_tensors

DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool)

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
TENSORS = st.dictionaries(NAMES, st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=5)


def made(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


@given(TENSORS)
def test_the_library_reads_what_we_wrote(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, tuple[tuple[int, ...], torch.dtype]]
) -> None:
    tensors = {name: made(*kind) for name, kind in chosen.items() if name != "__metadata__"}
    path = tmp_path_factory.mktemp("tensors") / "a.safetensors"
    seal = write_tensors(path, tensors)
    content = path.read_bytes()
    assert load(content).keys() == tensors.keys()
    for name, value in load(content).items():
        assert (value.dtype, value.shape) == (tensors[name].dtype, tensors[name].shape)
        assert torch.equal(value, tensors[name])
    assert (seal.size, seal.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_views_strides_and_shared_memory_are_written_as_they_read(tmp_path: Path) -> None:
    x = torch.arange(24.0).reshape(2, 3, 2, 2)
    tensors = {
        "last": x.to(memory_format=torch.channels_last),
        "turned": x.mT,
        "part": x[:, 1:2],
        "same": x,
        "whole": x,
    }
    write_tensors(tmp_path / "a.safetensors", tensors)
    loaded = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(loaded[name], value) for name, value in tensors.items())


def test_a_dtype_without_a_place_in_the_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"tensor z of torch\.complex64 cannot be saved"):
        write_tensors(tmp_path / "a.safetensors", {"z": torch.zeros(1, dtype=torch.complex64)})


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_every_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype)
    assert len(tensor_bytes(x)) == 3 * x.element_size()
    assert torch.equal(torch.frombuffer(bytearray(tensor_bytes(x)), dtype=dtype), x)
