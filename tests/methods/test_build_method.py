"""From settings to a method: every entry trains, new weights follow from the seed, mistakes are one clear line."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_methods import projector_of
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.losses import CATALOGUE as LOSSES
from counterpoint.methods.catalogue import CATALOGUE
from counterpoint.methods.encoding import Head
from counterpoint.methods.joint import Classification, JointEmbedding, TwoTowers
from counterpoint.methods.target_branch import MomentumQueue, Predictive
from counterpoint.methods.wiring import ONLY_THERE, MethodParts, Wiring, build_method
from counterpoint.nn.encoders import MLP
from counterpoint.nn.heads import OutputMap, output_width

N, IN, WIDTH, SECOND = 8, 6, 16, (5,)
CLASSES = {"joint": JointEmbedding, "queue": MomentumQueue, "predictive": Predictive, "cross-modal": TwoTowers}
CLASSES |= {"classification": Classification}


def settings_of(method: str, **sections: Any) -> TrainSettings:
    return TrainSettings.model_validate({"method": method, "seed": 3} | sections)


def parts_of(
    method: str, *, projector: str | None = None, output_map: OutputMap | None = None, seed: int = 3, **changed: Any
) -> MethodParts:
    """As a recipe hands them over: everything as the entry has it."""
    entry = CATALOGUE[method]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = MLP(IN, WIDTH)
        head = projector_of(method, WIDTH, projector)
    width = output_width(projector or entry.projector, WIDTH, features=entry.features_for(WIDTH))
    d0 = None if entry.d0_share is None else max(2, round(entry.d0_share * width))
    output_map = output_map or OutputMap(d0=d0, nonnegative=entry.nonnegative, normalize=False)
    second = SECOND if entry.wiring == "cross-modal" else None
    parts = MethodParts(backbone, Head(head, output_map), WIDTH, width, 3, (IN,), second, seed)
    return replace(parts, **changed)


def built(method: str, **sections: dict[str, Any]) -> Wiring:
    return build_method(settings_of(method, **sections), parts_of(method))


def batch(method: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(9)
    view0 = torch.randn(N, IN, generator=generator)
    view1 = view0 + 0.3 * torch.randn(N, IN, generator=generator)
    if CATALOGUE[method].wiring == "cross-modal":
        view1 = view1[:, : SECOND[0]]
    return view0, view1, torch.tensor([0, 1, 2, 0, 1, 2, -1, -1])


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.sampled(3)
def test_every_method_is_wired_as_its_entry_says_and_learns(name: str) -> None:
    method = built(name)
    assert type(method) is CLASSES[CATALOGUE[name].wiring]
    optimizer = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], lr=1e-4)
    first_queue = getattr(method.loss, "queue_KD", torch.empty(0)).clone()
    losses = []
    for step in range(1, 21):
        optimizer.zero_grad()
        loss = method.train()(*batch(name))
        loss.backward()
        losses.append(float(loss.detach()))
        assert all(p.grad is not None for p in method.parameters() if p.requires_grad)
        optimizer.step()
        method.after_step(step / 20)
        if isinstance(method, MomentumQueue):  # of one batch only, it would fill with the samples' own keys
            method.loss.queue_KD.copy_(first_queue)
    assert losses[-1] < losses[0]
    assert losses[0] >= method.loss.floor(N)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - set(ONLY_THERE)))
def test_every_loss_of_pairs_fits_the_joint_wiring(name: str) -> None:
    options = {"loss": "infonce"} if name in ("hard-negatives", "sparsity-penalty") else {}
    method = built("simclr", loss={"name": name, "options": options})
    method(*batch("simclr")).backward()
    assert all(p.grad is not None for p in method.backbone.parameters())


def added_weights(method: Wiring) -> dict[str, Tensor]:
    """What did not come with the parts."""
    return {
        name: value
        for name, value in method.state_dict().items()
        if name.startswith(("predictor", "second_", "loss")) and value.is_floating_point()
    }


@pytest.mark.parametrize("name", ["moco", "byol", "simsiam", "cross-modal", "supervised", "nonnegative-supervised"])
def test_new_weights_follow_from_the_seed_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = added_weights(built(name))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    again = added_weights(built(name))
    other = added_weights(build_method(settings_of(name), parts_of(name, seed=4)))
    assert first
    assert all(torch.equal(again[key], value) for key, value in first.items())
    assert any(not torch.equal(other[key], value) for key, value in first.items())


def test_settings_reach_the_method() -> None:
    moco: Any = built("moco", target={"momentum": 0.5, "queue_size": 7}, loss={"epsilon": 0.25})
    assert (moco.momentum, len(moco.loss.queue_KD), moco.loss.epsilon, moco.loss.temperature) == (0.5, 7, 0.25, 0.2)
    dcl: Any = built("moco", loss={"name": "dcl"})
    assert (dcl.loss.epsilon, len(dcl.loss.queue_KD), dcl.momentum) == (0.0, 4096, 0.99)
    byol: Any = built("byol", target={"predictor_hidden": 9})
    assert (byol.predictor[0].weight.shape, byol.momentum, byol.loss.form) == ((9, 256), 0.996, "squared")
    simsiam: Any = built("simsiam")
    assert (simsiam.predictor[0].weight.shape, simsiam.momentum, simsiam.loss.form) == ((4, 16), None, "cosine")
    alpha: Any = built("alpha-cl")
    assert (type(alpha.loss.rule).__name__, alpha.loss.rule.temperature) == ("Direct", 0.5)
    other_rule: Any = built("alpha-cl", loss={"options": {"rule": "square"}})
    assert type(other_rule.loss.rule).__name__ == "Square"
    other_loss: Any = built("alpha-cl", loss={"name": "triplet", "options": {"margin": 0.5}})  # no rule for it
    assert other_loss.loss.card.psi == "[x + 0.5]_+"
    direct: Any = built("directclr")
    assert (direct.loss.pairing.negatives, direct.loss.psi.scale, direct.output_map.d0) == ("cross-view", 10.0, 3)
    warm = TrainSettings(method="simclr", temperature=0.5)
    assert getattr(build_method(warm, parts_of("simclr")).loss, "psi").scale == 2.0  # noqa: B009 - of one kind of loss


def test_chunks_reach_the_encoder_and_name_no_parameter_twice() -> None:
    plain = built("simclr")
    refusal = (
        r"engine.chunk_size 4: layer backbone.1 \(BatchNorm1d\) mixes the samples .*; use --engine.chunk-norm true"
    )
    with pytest.raises(UsageError, match=refusal):
        built("simclr", engine={"chunk_size": 4})
    without_norm: dict[str, Any] = {"backbone": nn.Linear(IN, WIDTH)}
    sections = {"engine": {"chunk_size": 4}}
    for name in ("simclr", "moco"):
        assert build_method(settings_of(name, **sections), parts_of(name, **without_norm)).chunks is not None
    head: dict[str, Any] = {"projector": "linear", **without_norm}  # the predictor's BatchNorm sees the whole batch
    assert build_method(settings_of("byol", **sections), parts_of("byol", **head)).chunks is not None
    chunked = built("simclr", engine={"chunk_size": 4, "chunk_norm": True})
    assert list(chunked.state_dict()) == list(plain.state_dict())
    assert torch.isfinite(chunked(*batch("simclr")))


IMAGES, PAIR = (3, 8, 8), (3, 16, 16)


@pytest.mark.parametrize(
    ("method", "sections", "changed", "sentence"),
    [
        ("simcrl", {}, {}, "unknown method 'simcrl'; did you mean 'simclr'?"),
        ("supcon", {}, {"num_classes": 0}, "method supcon learns from labels, and the data have no labels"),
        ("supervised", {}, {"num_classes": 0}, "method supervised learns from labels, and the data have no labels"),
        ("supervised", {}, {"num_classes": 1}, "num_classes .*1"),
        ("simclr", {"loss": {"name": "supcon"}}, {"num_classes": 0}, "loss.name supcon: it learns from labels"),
        ("cross-modal", {}, {"second_shape": None}, "method cross-modal learns from pairs of two kinds"),
        ("simclr", {}, {"second_shape": SECOND}, "method simclr sends both views through one encoder"),
        ("directclr", {}, {"output_map": OutputMap(d0=17)}, r"output\.d0 .* 16, got 17"),
        ("moco", {"loss": {"name": "triplet"}}, {}, "loss.name triplet: method moco takes infonce or dcl only"),
        ("moco", {"loss": {"options": {"normalize": False}}}, {}, "with a queue it takes temperature and epsilon only"),
        ("byol", {"loss": {"name": "infonce"}}, {}, "loss.name infonce: method byol takes regression only"),
        ("simclr", {"loss": {"name": "regression"}}, {}, "cannot use it; use --method byol or simsiam"),
        ("simclr", {"loss": {"name": "cross-entropy"}}, {}, "cannot use it; use --method supervised"),
        ("supervised", {"loss": {"name": "infonce"}}, {}, "method supervised takes cross-entropy or nonnegative"),
        ("simclr", {"loss": {"options": {"margin": 1}}}, {}, "loss.name infonce: loss infonce takes no margin"),
        ("simclr", {"loss": {"name": "infonec"}}, {}, "'infonce'"),
        ("cross-modal", {"encoder": "custom"}, {"second_shape": IMAGES}, "encoder custom: the second kind of sample"),
        ("cross-modal", {"encoder": "mlp"}, {"second_shape": PAIR}, "encoder mlp: the second kind of sample"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    method: str, sections: dict[str, Any], changed: dict[str, Any], sentence: str
) -> None:
    parts = parts_of(method if method in CATALOGUE else "simclr", **changed)
    with pytest.raises(UsageError, match=sentence) as refusal:
        build_method(settings_of(method, **sections), parts)
    assert "\n" not in str(refusal.value)
