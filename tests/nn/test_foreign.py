"""Encoders trained elsewhere, by name, by file and by object, with the input that they expect."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import sha256_of
from counterpoint.core.user_objects import FlagText
from counterpoint.nn.encoders import CATALOGUE
from counterpoint.nn.foreign import LIBRARIES, build_foreign, habit_of
from foreign_files import filled, prefixed, with_company
from refusals import refused

SIDE = (3, 32, 32)


def refusal(encoder: Any, in_shape: tuple[int, ...] = SIDE, **options: Any) -> str:
    return refused((UsageError, RunError), build_foreign, encoder, in_shape, **options)


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


# --- weights


@pytest.fixture
def weights(tmp_path: Path, torchvision: Any) -> Path:
    """A checkpoint of MoCo's kind, of a ResNet-18 with a head."""
    module = filled(torchvision.models.resnet18())
    path = tmp_path / "moco.pth.tar"
    torch.save(with_company(prefixed("module.encoder_q.", module.state_dict())), path)
    return path


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
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


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
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


# --- names


UNKNOWN = {
    "resnet19": "did you mean 'resnet9'?",
    "timm:resnet19": "timm has no model 'resnet19'; did you mean",
    "timm:vit_small_patch16_224.dinoo": "did you mean 'vit_small_patch16_224.dino'?",
    "torchvision:resnet19": "torchvision has no model 'resnet19'; did you mean",
    "torchvison:resnet18": "unknown encoder 'torchvison:resnet18'; did you mean 'torchvision:'?",
    "solo-learn:resnet18": "is gone: torchvision:NAME takes its weights",
    FlagText("no_such_module:make"): "no_such_module",
    "weights.pth": "is a file of weights; give it as weights, and its architecture as the encoder",
    "net.onnx": "is gone: onnxruntime computes features",
    "torchvision:squeezenet1_0": "does not end with a linear layer",
}


@pytest.mark.parametrize(("name", "said"), UNKNOWN.items())
def test_an_unknown_name_is_one_line_with_the_nearest(name: str, said: str, torchvision: Any, timm: Any) -> None:
    assert said in refusal(name)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_is_absent_is_one_line(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # import raises, as if it were not installed
    needs = f"{library}:resnet18 needs {library}; install it with: pip install {library}"
    assert needs in refusal(f"{library}:resnet18")


def test_the_side_that_an_encoder_was_made_for(torchvision: Any, timm: Any) -> None:
    sides = {"timm:vit_small_patch14_dinov2": 518, "timm:resnet18": 224, "torchvision:resnet18": 224}
    sides |= dict.fromkeys(CATALOGUE)
    assert {name: habit_of(name).side for name in sides} == sides
    assert habit_of(nn.Identity()).side is None
    with pytest.raises(UsageError, match="'resnet18'"):
        habit_of("torchvision:resnet8")
