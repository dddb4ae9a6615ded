"""Encoders trained elsewhere, by name, by file and by object, with the input that they expect."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import sha256_of
from counterpoint.core.user_objects import FlagText
from counterpoint.nn.encoders import CATALOGUE
from counterpoint.nn.foreign import LIBRARIES, build_foreign, default_side
from foreign_files import filled, prefixed, with_company

SIDE = (3, 32, 32)


def refusal(encoder: Any, in_shape: tuple[int, ...] = SIDE, **options: Any) -> str:
    with pytest.raises((UsageError, RunError)) as caught:
        build_foreign(encoder, in_shape, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def of(backbone: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return backbone(images)


@pytest.fixture
def torchvision() -> Any:
    return pytest.importorskip("torchvision", reason="torchvision is not installed (extra `vision`)")


@pytest.fixture
def timm() -> Any:
    return pytest.importorskip("timm", reason="timm is not installed (extra `vision`)")


# --- random weights


@pytest.mark.parametrize("name", ["convnet", "timm:test_resnet"])
def test_random_weights_follow_the_seed_and_the_callers_draws_go_on(name: str, torchvision: Any, timm: Any) -> None:
    before = torch.get_rng_state()
    first, same, other = (build_foreign(name, SIDE, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    images = torch.rand(2, *SIDE)
    assert torch.equal(of(first.backbone, images), of(same.backbone, images))
    assert not torch.equal(of(first.backbone, images), of(other.backbone, images))
    assert not any(part.training for part in first.backbone.modules())
    assert (first.name, first.weights_sha256, first.remarks) == (name, None, ("random weights (seed 1)",))


def test_vectors_have_encoders_of_their_own() -> None:
    assert build_foreign("mlp", (5,)).backbone(torch.rand(2, 5)).shape == (2, 256)
    assert "takes images, but the data are vectors" in refusal("torchvision:resnet18", (5,))
    assert "takes vectors, but the data are images" in refusal("mlp")


WIDTHS = {"alexnet": 4096, "vit_b_32": 768, "swin_t": 768, "convnext_tiny": 768, "mobilenet_v3_small": 1024}
WIDTHS |= {"densenet121": 1024, "googlenet": 1024, "regnet_y_400mf": 440}


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "width"), WIDTHS.items())
def test_models_of_torchvision_end_before_their_last_layer(name: str, width: int, torchvision: Any) -> None:
    backbone = build_foreign(f"torchvision:{name}", (3, 224, 224)).backbone
    assert of(backbone, torch.rand(2, 3, 224, 224)).shape == (2, width)


def test_solo_learns_stem_pads_by_two_up_to_64_pixels(torchvision: Any) -> None:
    small: Any = build_foreign("solo-learn:resnet18", SIDE).backbone
    assert (small.conv1.kernel_size, small.conv1.stride, small.conv1.padding) == ((3, 3), (1, 1), (2, 2))
    assert isinstance(small.maxpool, nn.Identity)
    large: Any = build_foreign("solo-learn:resnet18", (3, 96, 96)).backbone
    assert large.conv1.kernel_size == (7, 7)


# --- weights


@pytest.fixture
def weights(tmp_path: Path, torchvision: Any) -> Path:
    """A checkpoint of MoCo's kind, of a ResNet-18 with a head."""
    module = filled(torchvision.models.resnet18())
    path = tmp_path / "moco.pth.tar"
    torch.save(with_company(prefixed("module.encoder_q.", module.state_dict())), path)
    return path


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18", "resnet18"])
@pytest.mark.sampled(3)
def test_one_file_gives_the_same_network_in_each_library(
    name: str, weights: Path, torchvision: Any, timm: Any, generator: torch.Generator
) -> None:
    theirs = filled(torchvision.models.resnet18())
    theirs.fc = nn.Identity()
    known = build_foreign(name, SIDE, weights=weights)
    images = torch.rand(2, *SIDE, generator=generator)
    assert torch.allclose(of(known.backbone, images), of(theirs, images), rtol=1e-5)
    assert known.weights_sha256 == sha256_of(weights)
    assert known.remarks[0].startswith("took 100 tensors under state_dict.module.encoder_q")
    assert known.remarks[1] == (
        "left aside: scale, state_dict.module.encoder_q.fc.weight, state_dict.module.encoder_q.fc.bias"
    )


@pytest.mark.thorough
def test_a_small_stem_of_other_programs_says_how_it_pads(tmp_path: Path, torchvision: Any) -> None:
    theirs = filled(build_foreign("solo-learn:resnet18", SIDE).backbone)
    torch.save({"state_dict": prefixed("backbone.", theirs.state_dict())}, tmp_path / "solo.ckpt")
    said = build_foreign("resnet18", SIDE, weights=tmp_path / "solo.ckpt").remarks
    assert any("pads by 1" in remark and "solo-learn:resnet18" in remark for remark in said)
    images = torch.rand(2, *SIDE)
    same = build_foreign("solo-learn:resnet18", SIDE, weights=tmp_path / "solo.ckpt")
    assert torch.equal(of(same.backbone, images), of(theirs, images))


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18", "resnet18"])
@pytest.mark.sampled(3)
def test_grey_images_go_to_weights_for_colours(name: str, weights: Path, timm: Any, generator: torch.Generator) -> None:
    grey = build_foreign(name, (1, 32, 32), weights=weights)
    colour = build_foreign(name, SIDE, weights=weights)
    images = torch.rand(2, 1, 32, 32, generator=generator)
    assert torch.equal(of(grey.backbone, images), of(colour.backbone, images.expand(-1, 3, -1, -1)))
    # Prepared with a mean for each colour, they have three channels already.
    assert of(grey.backbone, images.expand(-1, 3, -1, -1)).shape == of(grey.backbone, images).shape
    assert grey.mean == colour.mean
    assert "grey images as three equal channels" in grey.remarks


def test_a_full_checkpoint_of_dino_gives_its_teacher(tmp_path: Path, timm: Any, generator: torch.Generator) -> None:
    shape = (3, 160, 160)
    student, teacher = (filled(timm.create_model("test_vit", num_classes=0), seed) for seed in (0, 1))
    heads = {"module.head.mlp.0.weight": torch.ones(3, 3), "module.head.last_layer.weight_v": torch.ones(3, 3)}
    parts = {
        name: prefixed("module.backbone.", part.state_dict()) | heads
        for name, part in (("student", student), ("teacher", teacher))
    }
    torch.save(with_company({}) | parts, tmp_path / "checkpoint.pth")
    known = build_foreign("timm:test_vit", shape, weights=tmp_path / "checkpoint.pth")
    images = torch.rand(2, *shape, generator=generator)
    assert torch.equal(of(known.backbone, images), of(teacher, images))
    assert "under teacher.module.backbone" in known.remarks[0]
    assert known.remarks[1].startswith("the file also has the whole encoder under student.module.backbone;")
    said = refusal("timm:test_vit", (3, 32, 32), weights=tmp_path / "checkpoint.pth")
    assert "pos_embed is " in said


def test_a_tag_of_timm_says_how_images_were_normalised(timm: Any, tmp_path: Path) -> None:
    tagged = LIBRARIES["timm:"].habit("vit_small_patch16_224.dino")
    assert tagged.mean == (0.485, 0.456, 0.406)
    assert LIBRARIES["timm:"].habit("vit_small_patch16_224").mean == (0.5, 0.5, 0.5)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "w.safetensors")
    said = build_foreign("timm:test_resnet", SIDE, weights=tmp_path / "w.safetensors").remarks
    assert any("for others give their tag" in remark for remark in said)
    said = build_foreign("timm:test_resnet.r160_in1k", SIDE, weights=tmp_path / "w.safetensors").remarks
    assert not any("tag" in remark for remark in said)


# --- modules of the user's


class Own(nn.Module):
    """A module whose maps must be pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 7, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.first(images)


def test_a_module_is_copied_and_pooled(tmp_path: Path) -> None:
    module = Own().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    known = build_foreign(module, SIDE)
    assert of(known.backbone, torch.rand(2, *SIDE)).shape == (2, 7)
    assert (known.name, known.mean, known.weights_sha256) == ("Own", None, None)
    save_file(prefixed("net.", filled(Own()).state_dict()), tmp_path / "w.safetensors")
    build_foreign(module, SIDE, weights=tmp_path / "w.safetensors").backbone.requires_grad_(False)
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_module_is_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "from torch import nn\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 5))\ndef no(): return 1\n"
    )
    (tmp_path / "my_nets.py").write_text(code, encoding="utf-8")
    first, same = (build_foreign(FlagText("my_nets:make"), SIDE, seed=3) for _ in range(2))
    images = torch.rand(2, *SIDE)
    assert torch.equal(of(first.backbone, images), of(same.backbone, images))
    assert "must be a torch module, got int" in refusal(FlagText("my_nets:no"))
    assert "repeat it as --encoder my_nets:make" in refusal("my_nets:make")  # not by a text that no flag gave
    sys.modules.pop("my_nets")


# --- ONNX


def write_onnx(path: Path, batch: int | str = "n", kind: str = "FLOAT", *, num_inputs: int = 1) -> None:
    """A graph that averages images over space, and a second output."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    number = getattr(onnx.TensorProto, kind)
    inputs = [onnx.helper.make_tensor_value_info(f"x{k}", number, [batch, 3, 8, 8]) for k in range(num_inputs)]
    outputs = [onnx.helper.make_tensor_value_info(name, number, None) for name in ("maps", "rest")]
    nodes = [
        onnx.helper.make_node("GlobalAveragePool", ["x0"], ["maps"]),
        onnx.helper.make_node("Abs", ["x0"], ["rest"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16"])
@pytest.mark.parametrize("batch", ["n", 1, 4])
def test_an_onnx_file_is_an_encoder(batch: int | str, kind: str, tmp_path: Path, generator: torch.Generator) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra `onnx`)")
    path = tmp_path / "net.onnx"
    write_onnx(path, batch, kind)
    known = build_foreign(str(path), (3, 8, 8))
    images = torch.rand(6, 3, 8, 8, generator=generator)
    tolerance = 1e-6 if kind == "FLOAT" else 2e-3
    assert torch.allclose(of(known.backbone, images), images.mean(dim=(2, 3)), atol=tolerance)
    assert known.weights_sha256 == sha256_of(path)
    assert known.remarks == ("took output maps", "left aside: output rest")
    assert default_side(str(path)) == 8
    assert "has its own weights" in refusal(str(path), (3, 8, 8), weights="w.pth")
    assert "cannot take samples of shape (3, 9, 9)" in refusal(str(path), (3, 9, 9))


def test_what_is_no_onnx_file_of_images_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra `onnx`)")
    path = tmp_path / "net.onnx"
    assert "No such file" in refusal(str(path))
    path.write_bytes(b"\x00\x01 no graph")
    assert "cannot be read by onnxruntime" in refusal(str(path))
    write_onnx(path, kind="INT64")
    assert "x0: tensor(int64)" in refusal(str(path)) or "cannot be read" in refusal(str(path))
    write_onnx(path, num_inputs=2)
    words = "must take one input of floats, or pictures as uint8, and takes x0: tensor(float), x1: tensor(float)"
    assert words in refusal(str(path))
    path.unlink()
    os.mkfifo(path)
    assert "a pipe" in refusal(str(path))


def write_graph(path: Path, *nodes: Any, kind: str = "FLOAT", shape: Any = ("n", 4), **parts: Any) -> str:
    """A graph from x (n, 4) to y; ``parts``: numbers by name, and functions."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra `onnx`)")
    helper, kinds = onnx.helper, onnx.TensorProto
    taken = helper.make_tensor_value_info("x", kinds.FLOAT, list(shape))
    given = helper.make_tensor_value_info("y", getattr(kinds, kind), None)
    functions = parts.pop("functions", ())
    numbers = [onnx.numpy_helper.from_array(np.array(value), name) for name, value in parts.items()]
    graph = helper.make_graph(list(nodes), "g", [taken], [given], numbers)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("own", 1)] if functions else [])]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets, functions=list(functions)), path)
    return str(path)


def node(*words: Any, **attributes: Any) -> Any:
    """A node: its operator, its inputs, its output."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    operator, *inputs, output = words
    return onnx.helper.make_node(operator, inputs, [output], **attributes)


NOT_ROWS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "twice as many": (("Concat", "x", "x", "y"), {"axis": 0}, r"output y is float32 (4, 4)"),
    "turned": (("Transpose", "x", "y"), {}, r"output y is float32 (4, 2)"),
    "none": (("Slice", "x", "zero", "zero", "y"), {}, r"output y is float32 (0, 4)"),
    "no rows": (("ReduceMean", "x", "y"), {"axes": [1], "keepdims": 0}, r"output y is float32 (2,)"),
    "one number": (("ReduceMean", "x", "y"), {"keepdims": 0}, r"output y is float32 ()"),
}


@pytest.mark.parametrize("name", NOT_ROWS)
def test_an_onnx_file_that_gives_no_row_for_each_sample_is_refused(name: str, tmp_path: Path) -> None:
    words, attributes, said = NOT_ROWS[name]
    path = write_graph(tmp_path / "net.onnx", node(*words, **attributes), zero=[0])
    assert said in refusal(path, (4,))
    assert path in refusal(path, (4,))


def test_an_onnx_file_whose_rows_depend_on_the_batch_is_refused_where_they_do(tmp_path: Path) -> None:
    """Two samples get two rows, and so do five; where a shape is fixed inside, the runtime refuses five."""
    first = build_foreign(write_graph(tmp_path / "a.onnx", node("Slice", "x", "a", "b", "y"), a=[0], b=[2]), (4,))
    shaped = build_foreign(write_graph(tmp_path / "b.onnx", node("Reshape", "x", "a", "y"), a=[2, 4]), (4,))
    for known in (first, shaped):
        assert known.backbone(torch.rand(2, 4)).shape == (2, 4)
        with pytest.raises(UsageError, match=r"\.onnx .* 5 samples"):
            known.backbone(torch.rand(5, 4))
    twice = node("Concat", "x", "x", "y", axis=0)
    assert "float32 (8, 4)" in refusal(write_graph(tmp_path / "c.onnx", twice, shape=(4, 4)), (4,))


# --- names


UNKNOWN = {
    "resnet19": "did you mean 'resnet9'?",
    "timm:resnet19": "timm has no model 'resnet19'; did you mean",
    "timm:vit_small_patch16_224.dinoo": "did you mean 'vit_small_patch16_224.dino'?",
    "torchvision:resnet19": "torchvision has no model 'resnet19'; did you mean",
    "torchvison:resnet18": "unknown encoder 'torchvison:resnet18'; did you mean 'torchvision:'?",
    "solo-learn:resnet19": "did you mean 'resnet18'?",
    FlagText("no_such_module:make"): "give it as package.module:name",
    "weights.pth": "is a file of weights; give it as weights, and its architecture as the encoder",
    "torchvision:squeezenet1_0": "does not end with a linear layer",
}


@pytest.mark.parametrize(("name", "said"), UNKNOWN.items())
def test_an_unknown_name_is_one_line_with_the_nearest(name: str, said: str, torchvision: Any, timm: Any) -> None:
    assert said in refusal(name)


ABSENT = {
    "timm:resnet18": ("timm", "pip install 'counterpoint[vision]'"),
    "torchvision:resnet18": ("torchvision", "pip install 'counterpoint[vision]'"),
    "solo-learn:resnet18": ("torchvision", "pip install 'counterpoint[vision]'"),
    "net.onnx": ("onnxruntime", "pip install 'counterpoint[onnx]'"),
}


@pytest.mark.parametrize("name", ABSENT)
def test_a_library_that_is_absent_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, remedy = ABSENT[name]
    monkeypatch.setitem(sys.modules, module, None)
    assert remedy in refusal(name)


def test_the_side_that_an_encoder_was_made_for(torchvision: Any, timm: Any) -> None:
    sides = {"timm:vit_small_patch14_dinov2": 518, "timm:resnet18": 224, "torchvision:resnet18": 224}
    sides |= dict.fromkeys([*CATALOGUE, "solo-learn:resnet18"])
    assert {name: default_side(name) for name in sides} == sides
    assert default_side(nn.Identity()) is None
    with pytest.raises(UsageError, match="did you mean 'resnet18'"):
        default_side("torchvision:resnet8")


def a_loop() -> Any:
    """A node that turns as often as the input m says."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    info, kinds = onnx.helper.make_tensor_value_info, onnx.TensorProto
    taken = [info("turn", kinds.INT64, []), info("is_on", kinds.BOOL, []), info("v", kinds.FLOAT, None)]
    given = [info("goes_on", kinds.BOOL, []), info("w", kinds.FLOAT, None)]
    body = onnx.helper.make_graph([node("Identity", "is_on", "goes_on"), node("Relu", "v", "w")], "g", taken, given)
    return node("Loop", "m", "", "x", "y", body=body)


def functions(depth: int) -> list[Any]:
    """Functions of which each calls the one before twice: 2^depth nodes."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    bodies = [[node("Relu", "a", "b")]]
    for k in range(depth - 1):
        bodies.append([node(f"f{k}", "a", "t", domain="own"), node(f"f{k}", "t", "b", domain="own")])
    return [onnx.helper.make_function("own", f"f{k}", ["a"], ["b"], body, opsets) for k, body in enumerate(bodies)]


def test_an_onnx_file_without_end_is_refused_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(depth: int) -> str:
        top = node(f"f{depth - 1}", "x", "y", domain="own")
        return write_graph(tmp_path / "calls.onnx", top, functions=functions(depth))

    def turns(number: int) -> str:
        return write_graph(tmp_path / "turns.onnx", a_loop(), m=np.int64(number))

    x = torch.rand(3, 4)
    for path in (turns(3), call(4)):
        assert torch.equal(of(build_foreign(path, (4,)).backbone, x), x)
    monkeypatch.setattr("counterpoint.nn.onnx_encoder.LIMIT_SECONDS", 1.0)
    assert "turns.onnx did not answer for 2 samples within 1 s" in refusal(turns(2**62), (4,))
    assert "calls.onnx did not open within 1 s" in refusal(call(40), (4,))
