"""Beside sentence-transformers itself: the losses that both have, and a training by its trainer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.integrations.trainer_losses import SentenceLoss
from counterpoint.losses import AlphaCL, Direct, InfoNCE
from counterpoint.nn.heads import OutputMap
from tolerances import assert_close

st = pytest.importorskip("sentence_transformers", reason="the extra text has it")
datasets = pytest.importorskip("datasets", reason="the extra text has it")
from tiny_text import sentences, tiny_model  # noqa: E402 (see above)

theirs = st.sentence_transformer.losses
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries


def value_and_gradient(model: Any, loss: Any, columns: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    model.zero_grad()
    value = loss([dict(features) for features in columns], None)
    value.backward()
    return value.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("num_columns", [2, 4])
@pytest.mark.parametrize(
    ("ours", "their"),
    [
        (SentenceLoss, theirs.MultipleNegativesRankingLoss),
        (lambda model: SentenceLoss(model, mini_batch_size=2), theirs.CachedMultipleNegativesRankingLoss),
        (
            lambda model: theirs.MatryoshkaLoss(model, SentenceLoss(model), [16, 8]),
            lambda model: theirs.MatryoshkaLoss(model, theirs.MultipleNegativesRankingLoss(model), [16, 8]),
        ),
    ],
    ids=["plain", "cached", "matryoshka"],
)
def test_value_and_gradient_are_theirs(num_columns: int, ours: Any, their: Any) -> None:
    model = tiny_model()
    columns = [model.preprocess(sentences(5, seed=seed)) for seed in range(num_columns)]
    expected, slope = value_and_gradient(model, their(model), columns)
    value, gradient = value_and_gradient(model, ours(model), columns)
    assert_close(value, expected)
    assert_close(gradient, slope)


def test_both_directions_are_theirs() -> None:
    model = tiny_model()
    columns = [model.preprocess(sentences(5, seed=seed)) for seed in range(2)]
    both = theirs.MultipleNegativesRankingLoss(
        model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    expected, slope = value_and_gradient(model, both, columns)
    value, gradient = value_and_gradient(model, SentenceLoss(model, InfoNCE(0.05, negatives="cross-view")), columns)
    assert_close(value, expected)
    assert_close(gradient, slope)


def test_dropout_is_the_same_in_both_passes_of_a_mini_batch() -> None:
    model = tiny_model(dropout=0.5).train()
    columns = [model.preprocess(sentences(4, seed=seed)) for seed in range(2)]
    found = []
    for size in (None, 4):  # one chunk draws what one pass draws
        torch.manual_seed(0)
        found.append(value_and_gradient(model, SentenceLoss(model, mini_batch_size=size), columns))
    assert_close(found[1][0], found[0][0])
    assert_close(found[1][1], found[0][1])


@pytest.mark.parametrize(
    "loss_of",
    [
        SentenceLoss,
        lambda model: SentenceLoss(model, AlphaCL(Direct(), "cross-view", anchors="first"), mini_batch_size=4),
        lambda model: SentenceLoss(model, output=OutputMap(nonnegative="relu", normalize=False)),
    ],
    ids=["infonce", "alpha-cl", "ncl"],
)
def test_their_trainer_lowers_the_loss_and_names_it_in_the_model_card(
    loss_of: Callable[[Any], Any], tmp_path: Path
) -> None:
    model = tiny_model()
    anchors = sentences(32, seed=0)
    # A positive is its anchor with one more word, a negative another sentence.
    texts = {"anchor": anchors, "positive": [f"{text} w0" for text in anchors], "negative": sentences(32, seed=1)}
    loss = loss_of(model)
    columns = [model.preprocess(texts[name]) for name in texts]
    before = float(loss([dict(features) for features in columns]).detach())
    arguments = st.SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=16,
        num_train_epochs=5,
        learning_rate=1e-3,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = st.SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=datasets.Dataset.from_dict(texts), loss=loss
    )
    trainer.train()
    assert float(loss([dict(features) for features in columns]).detach()) < before
    model.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "SentenceLoss" in card
    assert loss.get_config_dict()["loss"] in card
