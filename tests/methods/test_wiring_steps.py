"""Three steps of every wiring beside the same steps written from the papers: losses, weights, copies, queue."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from small_methods import (
    MOMENTUM,
    NUM_KEYS,
    NUM_SAMPLES,
    NUM_STEPS,
    TEMPERATURE,
    WIRINGS,
    batches,
    batches_of,
    classification,
    joint,
    normed,
    predictive,
    queue,
    towers,
    train,
)
from torch import Tensor

from counterpoint.losses import InfoNCE, Loss, SupCon
from counterpoint.methods.encoding import GradientCache
from counterpoint.methods.wiring import Wiring
from oracles import method_steps
from oracles.method_steps import Course, LossOf, Weights
from tolerances import assert_close, relative_error


def trained_weights(method: Wiring) -> Weights:
    return {name: value.detach().clone() for name, value in method.named_parameters() if value.requires_grad}


def assert_same_course(method: Wiring, losses: list[Tensor], course: Course) -> None:
    assert_close(torch.stack(losses), torch.stack(course.losses))
    assert set(course.weights) == set(trained_weights(method))
    for name, value in trained_weights(method).items():
        assert_close(value, course.weights[name])
    assert not torch.equal(losses[0], losses[1])


def assert_same_target(method: Wiring, course: Course) -> None:
    names = [name for name in method.state_dict() if name.startswith("target_")]
    assert len(names) == 4
    for name in names:
        assert_close(method.state_dict()[name], course.target[name.removeprefix("target_").replace(".module", "")])


@pytest.mark.parametrize(
    ("loss", "oracle"),
    [(InfoNCE(TEMPERATURE), method_steps.simclr), (SupCon(TEMPERATURE), method_steps.supcon)],
    ids=["simclr", "supcon"],
)
def test_joint_embedding(loss: Loss, oracle: Callable[[float], LossOf]) -> None:
    method = joint(loss)
    course = method_steps.train(trained_weights(method), batches(), oracle(TEMPERATURE))
    assert_same_course(method, train(method, batches()), course)


def test_moco() -> None:
    method = queue()
    first = method.loss.queue_KD.clone()
    course = method_steps.moco(trained_weights(method), batches(), first, MOMENTUM, TEMPERATURE)
    losses = train(method, batches())
    assert_same_course(method, losses, course)
    assert_same_target(method, course)
    assert_close(method.loss.queue_KD, course.queue_KD)
    assert int(method.loss.pointer) == course.pointer == NUM_STEPS * NUM_SAMPLES % NUM_KEYS
    assert relative_error(method.loss.queue_KD, first) > 0.1


def test_byol() -> None:
    method = predictive("squared", MOMENTUM)
    course = method_steps.byol(trained_weights(method), batches(), MOMENTUM)
    losses = train(method, batches())
    assert_same_course(method, losses, course)
    assert_same_target(method, course)


def test_simsiam() -> None:
    method = predictive("cosine", None)
    course = method_steps.simsiam(trained_weights(method), batches())
    assert_same_course(method, train(method, batches()), course)
    assert not any(name.startswith("target") for name in method.state_dict())


def test_cross_modal() -> None:
    method, given = towers(), batches_of("cross-modal")
    course = method_steps.train(trained_weights(method), given, method_steps.clip)
    assert "loss.scale.log" in course.weights
    assert_same_course(method, train(method, given), course)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_classification(nonnegative: bool) -> None:
    method = classification(nonnegative=nonnegative)
    oracle = method_steps.nonnegative_supervised if nonnegative else method_steps.supervised
    course = method_steps.train(trained_weights(method), batches(), oracle)
    assert_same_course(method, train(method, batches()), course)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_a_batch_without_labels_teaches_nothing(nonnegative: bool) -> None:
    method = classification(nonnegative=nonnegative)
    batch = batches()[0]
    loss = method(batch.view0, batch.view1, torch.full((NUM_SAMPLES,), -1))
    loss.backward()
    assert float(loss.detach()) == 0.0
    gradients = [parameter.grad for parameter in method.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", WIRINGS)
def test_chunks_change_nothing_but_memory(name: str) -> None:
    whole, chunked = WIRINGS[name](None), WIRINGS[name](partial(GradientCache, chunk_size=4))
    losses, in_chunks = train(whole, batches_of(name)), train(chunked, batches_of(name))
    assert_close(torch.stack(in_chunks), torch.stack(losses))
    assert list(whole.state_dict()) == list(chunked.state_dict())
    for key, value in whole.state_dict().items():
        assert_close(chunked.state_dict()[key].double(), value.double())


@pytest.mark.parametrize("name", WIRINGS)
def test_a_resumed_run_goes_on_as_if_nothing_had_been(name: str) -> None:
    def progress(step: int) -> float:
        return step / 6

    given = batches_of(name, 6)
    through = WIRINGS[name](None)
    losses = train(through, given, progress=progress)
    before = WIRINGS[name](None)
    train(before, given[:3], progress=progress)
    after = WIRINGS[name](None)
    after.load_state_dict({key: value.clone() for key, value in before.state_dict().items()})
    resumed = train(after, given[3:], progress=lambda step: progress(step + 3))
    assert torch.equal(torch.stack(resumed), torch.stack(losses[3:]))
    for key, value in through.state_dict().items():
        assert torch.equal(after.state_dict()[key], value), key


@pytest.mark.parametrize("name", WIRINGS)
def test_a_rank_may_hold_a_single_sample_where_the_loss_is_a_mean_over_samples(name: str) -> None:
    if name in ("simclr", "simclr, apart", "supcon", "barlow-twins", "cross-modal"):  # need two of the whole batch
        return
    batch = batches_of(name)[1]
    loss = WIRINGS[name](None)(batch.view0[2:3], batch.view1[2:3], batch.labels[2:3])
    assert torch.isfinite(loss)


@pytest.mark.parametrize("name", WIRINGS)
def test_the_encoder_runs_in_low_precision_and_the_loss_in_float32(name: str) -> None:
    method, batch = WIRINGS[name](None).float(), batches_of(name)[0]
    with torch.autocast("cpu", torch.bfloat16):
        loss = method(batch.view0.float(), batch.view1.float(), batch.labels)
    assert loss.dtype == torch.float32
    loss.backward()
    exact = WIRINGS[name](None)(batch.view0, batch.view1, batch.labels)
    assert 0 < relative_error(loss, exact) < 0.1


def batch_sizes(method: Wiring, name: str) -> list[int]:
    """How many samples pass the encoder (or its copy) together."""
    sizes: list[int] = []
    encoders = [method.backbone, getattr(method, "target_backbone", None), getattr(method, "second_backbone", None)]
    for encoder in encoders:
        if encoder is not None:
            encoder.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    batch = batches_of(name)[0]
    method(batch.view0, batch.view1, batch.labels)
    return sizes


@pytest.mark.parametrize("name", WIRINGS)
def test_the_statistics_of_batch_norm_are_those_of_the_papers(name: str) -> None:
    n, by_itself = NUM_SAMPLES, ("moco", "byol", "simsiam", "cross-modal", "simclr, apart", "supervised, apart")
    sizes = batch_sizes(WIRINGS[name](None), name)
    assert sizes == ([n] * (4 if name == "byol" else 2) if name in by_itself else [2 * n])


@pytest.mark.parametrize("is_apart", [True, False])
def test_views_apart_have_statistics_of_their_own(is_apart: bool) -> None:
    """Batch normalisation by hand: mean and variance of one view each (apart), or of both (ioffe2015, Algorithm 1)."""
    method, batch = normed(is_apart=is_apart).train(), batches()[0]
    inner, norm = list(method.backbone.children())
    running = torch.ones(1, dtype=torch.float64)
    features = [inner(view) for view in (batch.view0, batch.view1)]
    groups = features if is_apart else [torch.cat(features)]
    normalised = []
    for group in groups:
        mean, var = group.mean(0), group.var(0, correction=0)
        normalised.append((group - mean) / (var + 1e-5).sqrt())
        running = 0.9 * running + 0.1 * group.var(0)
    z = method.projector(torch.cat(normalised))
    z = z / z.norm(dim=1, keepdim=True)
    similarity = (z @ z.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    own = similarity.roll(NUM_SAMPLES, dims=1).diagonal()
    expected = (similarity.logsumexp(1) - own).mean()
    assert_close(method(batch.view0, batch.view1).detach(), expected.detach())
    assert_close(norm.state_dict()["running_var"], running)
