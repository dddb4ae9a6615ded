"""Weights find their places: under any prefix, in the layouts of frameworks, whole or not at all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.nn.encoders import Pooled, ResNet
from counterpoint.nn.foreign_weights import fit_weights
from foreign_files import filled, prefixed
from refusals import refused

resnet = pytest.importorskip("torchvision.models.resnet", reason="torchvision is not installed (extra `vision`)")
BLOCKS = {"basic": ((2, 1, 2, 1), 1, resnet.BasicBlock), "bottleneck": ((1, 2, 1, 1), 4, resnet.Bottleneck)}


def torchvisions(kind: str = "basic") -> Any:
    counts, _, block = BLOCKS[kind]
    model = filled(resnet.ResNet(block, list(counts)))
    model.fc = nn.Identity()
    return model


class Block(nn.Module):
    """The names of a block of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), nn.ModuleDict({"qkv": nn.Linear(width, 3 * width)})


class Small(nn.Module):
    """A network with numbered blocks, a norm with counts, and a table of positions."""

    def __init__(self, depth: int = 2, *, tokens: int = 5, patch: int = 4, colours: int = 3) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.randn(1, tokens, 6))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(colours, 6, patch, patch)})
        self.bn = nn.BatchNorm1d(6)
        self.blocks = nn.Sequential(*[Block(6) for _ in range(depth)])


def refusal(module: nn.Module, tensors: dict[str, Tensor]) -> str:
    before = {name: value.clone() for name, value in module.state_dict().items()}
    message = refused(UsageError, fit_weights, module, tensors, "w.pth")
    assert message.startswith("w.pth")
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} was changed"
    return message


def is_filled(module: nn.Module, tensors: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, tensors[name]) for name, value in module.state_dict().items() if "num_" not in name)


# --- prefixes

PREFIXES = {
    "nothing": "",
    "DDP": "module.",
    "torch.compile": "_orig_mod.",
    "Lightning": "state_dict.",
    "MoCo v2": "state_dict.module.encoder_q.",
    "MoCo v3": "state_dict.module.base_encoder.",
    "solo-learn, lightly, stable-pretraining": "state_dict.backbone.",
    "DINO": "teacher.module.backbone.",
    "VISSL": "classy_state_dict.base_model.model.trunk._feature_blocks.",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
def test_any_prefix_is_found(prefix: str) -> None:
    weights = filled(Small()).state_dict()
    others = {"head.weight": torch.ones(3, 6), "prototypes.weight": torch.ones(9, 6), "queue": torch.ones(6, 8)}
    module = Small()
    remarks = fit_weights(module, prefixed(prefix, weights) | prefixed("epoch.", others), "w.pth")
    assert is_filled(module, weights)
    place = f"under {prefix[:-1]}" if prefix else "without a prefix"
    assert remarks[0] == f"took {len(weights) - 1} tensors {place}"  # but the count of batches
    assert "left aside: epoch.head.weight, epoch.prototypes.weight, epoch.queue" in remarks


ORDERS = [
    (["student.backbone.", "teacher.backbone."], "teacher.backbone."),
    (["model.", "model_ema."], "model_ema."),
    (["state_dict.", "state_dict_ema."], "state_dict_ema."),
    (["module.encoder_k.", "module.encoder_q."], "module.encoder_q."),
    (["momentum_backbone.", "backbone."], "backbone."),
    (["target_encoder.", "online_encoder."], "online_encoder."),
    (["student_backbone.", "backbone."], "backbone."),
    (["state_dict.backbone.", "state_dict.other."], "state_dict.backbone."),
]


@pytest.mark.parametrize(("prefixes", "taken"), ORDERS)
def test_of_several_encoders_one_is_taken_and_the_others_are_named(prefixes: list[str], taken: str) -> None:
    files = {prefix: filled(Small(), seed).state_dict() for seed, prefix in enumerate(prefixes)}
    tensors = {key: value for prefix, weights in files.items() for key, value in prefixed(prefix, weights).items()}
    module = Small()
    remarks = fit_weights(module, tensors, "w.pth")
    assert remarks[0].endswith(f" under {taken[:-1]}")
    assert is_filled(module, files[taken])
    (other,) = set(prefixes) - {taken}
    assert any(f" under {other[:-1]};" in remark for remark in remarks)
    assert not any("left aside" in remark for remark in remarks)


def test_a_pooled_module_gets_the_weights_of_its_body_and_half_precision_becomes_single() -> None:
    weights = {
        name: value.half() if value.is_floating_point() else value for name, value in Small().state_dict().items()
    }
    body = Small()
    fit_weights(Pooled(body, (1,)), weights, "w.pth")
    assert body.pos_embed.dtype == torch.float32
    assert torch.equal(body.pos_embed, weights["pos_embed"].float())


# --- names of other programs


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_file_may_have_the_numbers_of_children(kind: str, generator: torch.Generator) -> None:
    source, module = filled(torchvisions(kind)), torchvisions(kind).eval()
    numbered = nn.Sequential(*list(source.children())[:-1])
    (took, *_) = fit_weights(module, prefixed("state_dict.backbone.", numbered.state_dict()), "w.pth")
    assert took.endswith("by the numbers of its children")
    images = torch.rand(2, 3, 40, 40, generator=generator)
    with torch.no_grad():
        assert torch.allclose(module(images), source(images), rtol=1e-5)


def test_our_resnet_refuses_the_names_of_other_programs_and_says_where_they_fit() -> None:
    with pytest.raises(UsageError, match=r"does not fit the encoder resnet18: .*timm:NAME or torchvision:NAME"):
        fit_weights(ResNet(3, (2, 2, 2, 2), stem="large"), torchvisions().state_dict(), "w.pth", "resnet18")


# --- what does not fit


def test_missing_and_unknown_names_are_named() -> None:
    weights = filled(Small()).state_dict()
    renamed = {name.replace("norm1", "ln"): value for name, value in weights.items()}
    said = refusal(Small(), prefixed("net.", renamed))
    assert "it has 11 of the encoder's 15 tensors under net;" in said
    assert "missing: blocks.0.norm1.weight, blocks.0.norm1.bias, blocks.1.norm1.weight, ..." in said
    assert "unknown: net.blocks.0.ln.weight, net.blocks.0.ln.bias, net.blocks.1.ln.weight, ..." in said


def test_a_file_of_something_else_names_both_sides() -> None:
    said = refusal(Small(), {"a.b": torch.ones(1), "c": torch.ones(2)})
    ours = "pos_embed, patch_embed.proj.weight, patch_embed.proj.bias, ..."
    assert said == f"w.pth does not fit the encoder: it has a.b, c, the encoder {ours}"


def test_a_deeper_network_is_refused_although_its_first_blocks_fit() -> None:
    weights = filled(Small(3)).state_dict()
    assert "blocks.2.norm1.weight in or beside its blocks" in refusal(Small(2), prefixed("net.", weights))


def test_another_shape_is_said() -> None:
    assert "pos_embed is 1 x 37 x 6 and not 1 x 5 x 6" in refusal(Small(), Small(tokens=37).state_dict())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_refused_by_name(value: float) -> None:
    weights = {name: tensor.clone() for name, tensor in Small().state_dict().items()}
    weights["blocks.1.norm1.bias"][2] = value
    said = refusal(Small(), prefixed("net.", weights))
    assert "net.blocks.1.norm1.bias" in said
