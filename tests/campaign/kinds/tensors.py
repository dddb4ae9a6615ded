"""Tensors of every layout, dtype and shape in every function that takes some: a sound result, or one line."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import counterpoint as cp
from campaign.kind import Case, Kind, Place, Verdict
from campaign.oracle import CONTROL, judge
from campaign.processes import Process
from campaign.small_runs import must, train_words, whole, write_data
from campaign.tensors import FAIR, hostile

ROWS, FEATURES = 16, 6  # features: as the small run takes them
NOT_FINITE, REFUSED, NOT_ONE_LINE = 71, 72, 73  # exit codes
FAULTS = {NOT_FINITE: "not finite", REFUSED: "fair input refused", NOT_ONE_LINE: "not one line"}
ERRORS = (cp.CounterpointError, ValueError, TypeError)
SECONDS = 30


def next_case(draw: np.random.Generator) -> Case:
    """A function, and the seed of the tensors that it is given."""
    name = str(draw.choice(LOSSES if draw.random() < 0.7 else list(OTHERS)))
    return {"function": name, "seed": int(draw.integers(1 << 32))}


def prepare(material: Path) -> None:
    """A trained encoder."""
    write_data(material)
    must(train_words(material, whole(material)), material)


def run(case: Case, place: Place) -> Verdict:
    """Call the function in a process of its own."""
    outcome = Process(lambda: _call(case, place.material), place.folder / "said").wait(SECONDS)
    if outcome.code in FAULTS:
        return Verdict(FAULTS[outcome.code], f"{case['function']}: {outcome.err}")
    verdict = judge(outcome)
    return Verdict(verdict.fault, f"{case['function']}: {verdict.detail}" if verdict.fault else "")


def built(name: str) -> cp.losses.Loss:
    """A loss of the catalogue, of a matrix with ``FEATURES`` columns and labels below 3."""
    build = cp.losses.CATALOGUE[name]
    if name in ("hard-negatives", "sparsity-penalty"):
        return build(cp.losses.InfoNCE())
    return build(num_classes=3, num_features=FEATURES) if "cross-entropy" in name else build()


def _call(case: Case, material: Path) -> int:
    """Call the function, and judge what it answers; what it got is told beside a fault."""
    draw = random.Random(case["seed"])
    names, tensors = zip(*(_tensor(draw) for _ in range(2)), strict=True)
    sys.stderr.write(f"{names} ")
    # Functions of matrices must take these; two of one loss have one dtype.
    is_fair = case["function"] not in OTHERS and set(names) <= set(FAIR) and tensors[0].dtype == tensors[1].dtype
    are_finite = all(_is_finite(tensor) for tensor in tensors)
    try:
        if case["function"] in OTHERS:
            results = OTHERS[case["function"]](material, *tensors)
        else:
            results = _loss_and_gradients(case["function"], tensors, draw)
    except ERRORS as error:
        told = str(error)
        sys.stderr.write(f"{type(error).__name__}: {told}\n")
        if not told or "\n" in told or CONTROL.search(told):
            return NOT_ONE_LINE
        return REFUSED if is_fair else 0
    if are_finite and not all(_is_finite(result) for result in results):
        sys.stderr.write(f"{results}\n")
        return NOT_FINITE
    return 0


def _tensor(draw: random.Random) -> tuple[str, Tensor]:
    """One of every two is ordinary, so that a function is not always stopped by its first argument."""
    if draw.random() < 0.5:
        return hostile(draw, ROWS, FEATURES)
    torch.manual_seed(draw.getrandbits(32))
    return "plain", torch.randn(ROWS, FEATURES)


def _is_finite(value: Any) -> bool:
    """Whether every number is; what has no numbers is as well."""
    try:
        return bool(torch.isfinite(torch.as_tensor(value).detach()).all())
    except (TypeError, RuntimeError, NotImplementedError, ValueError):
        return True


def _loss_and_gradients(name: str, tensors: tuple[Tensor, ...], draw: random.Random) -> list[Tensor]:
    """Value of a loss on both tensors, and its gradients."""
    loss = built(name)
    views = [tensor.detach().requires_grad_() if _may_learn(tensor) else tensor for tensor in tensors]
    num_rows = 1 if views[0].is_nested or not views[0].dim() else len(views[0])
    labels = torch.arange(num_rows) % 3 if loss.uses_labels or draw.random() < 0.1 else None
    value = loss(views[0], views[1], labels=labels)
    if any(view.requires_grad for view in views):  # of two tensors of inference, neither can
        value.backward()
    return [value, *(view.grad for view in views if view.grad is not None)]


def _may_learn(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_inference() and not tensor.is_quantized


def _diagnose(material: Path, first: Tensor, second: Tensor) -> list[Any]:
    cp.diagnose(first, views=second, quiet=True)
    return []


def _geometry(material: Path, first: Tensor, second: Tensor) -> list[Any]:
    is_plain = not first.is_nested and first.layout == torch.strided  # others have no rows to take
    return [cp.theory.optimal_geometry(first.reshape(-1)[:5] if is_plain else first, num_negatives=8).duality_gap]


OTHERS: dict[str, Callable[[Path, Tensor, Tensor], list[Any]]] = {
    "diagnose": _diagnose,
    "diagnose with labels": lambda material, x, y: [cp.diagnose(x, labels=y, quiet=True), 0][1:],
    "represent": lambda material, x, y: [cp.load(whole(material)).represent(x)],
    "embed": lambda material, x, y: [cp.load(whole(material)).embed(x)],
    "encoder": lambda material, x, y: [cp.load(whole(material))(x)],
    "optimal geometry": _geometry,
    "attention": lambda material, x, y: [cp.losses.InfoNCE().attention(x, y) and 0],
    "importance": lambda material, x, y: [cp.losses.InfoNCE().importance(x, y)],
}
LOSSES = list(cp.losses.CATALOGUE)

KIND = Kind("tensors", next_case, run, prepare)
