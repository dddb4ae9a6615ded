"""The classifier that a supervised method trains with its encoder: its logits, and the files that keep it."""

# N samples, D features, C classes

import shlex
from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.derived_files import WEIGHTS_SHA256, read_card, write_card
from counterpoint.core.errors import RunError, first_line
from counterpoint.core.files import sha256_of, write_atomically
from counterpoint.core.numerics import product
from counterpoint.core.rundir import RunFolder
from counterpoint.nn.tensor_file import read_tensors, write_tensors

CARD_FORMAT = 1
WEIGHTS, BIASES = "class_weights", "class_biases"  # as the losses call them


def class_logits(
    z_ND: Tensor, weights_CD: Tensor, biases_C: Tensor | None = None, *, is_nonnegative: bool = False
) -> Tensor:
    """Inner products with the weights of classes, (n, c).

    Args:
        z_ND: vectors (n, d).
        weights_CD: weights of the classes (c, d).
        biases_C: biases of the classes (c,), or None.
        is_nonnegative: whether ReLU is applied to vectors and weights first (ncl2024, section 6).

    >>> import torch
    >>> class_logits(torch.ones(1, 2), torch.tensor([[1.0, -1.0], [2.0, 1.0]]), is_nonnegative=True)
    tensor([[1., 3.]])
    """
    if is_nonnegative:
        z_ND, weights_CD = F.relu(z_ND), F.relu(weights_CD)
    # ``product`` gives the same bits for any number of threads, @ does not.
    logits_NC = product(z_ND, weights_CD.T)
    return logits_NC if biases_C is None else logits_NC + biases_C


class Classifier(nn.Module):
    """Logits of named classes from what the loss compared, before it is scaled to unit length.

    Args:
        class_names: name of each class.
        weights_CD: weights of the classes (c, d).
        biases_C: biases of the classes (c,), or None.
        is_nonnegative: whether weights and vectors pass a ReLU.
    """

    class_weights: Tensor
    class_biases: Tensor | None

    def __init__(
        self, class_names: Sequence[str], weights_CD: Tensor, biases_C: Tensor | None, *, is_nonnegative: bool
    ) -> None:
        super().__init__()
        self.class_names = tuple(class_names)
        self.is_nonnegative = is_nonnegative
        self.register_buffer(WEIGHTS, weights_CD)
        self.register_buffer(BIASES, biases_C)

    def forward(self, z_ND: Tensor) -> Tensor:
        """Logits (n, c) of vectors (n, d)."""
        return class_logits(z_ND, self.class_weights, self.class_biases, is_nonnegative=self.is_nonnegative)


def save_classifier(
    folder: RunFolder, weights: Mapping[str, Tensor], class_names: Sequence[str], *, is_nonnegative: bool
) -> None:
    """Write ``classifier.safetensors`` and ``classifier.json``.

    Args:
        folder: folder of the run.
        weights: tensors of the loss, by their names there.
        class_names: names of the classes, in the order of class numbers.
        is_nonnegative: whether the loss puts a ReLU on weights and vectors.
    """
    write_atomically(folder.classifier_weights, lambda path: write_tensors(path, weights))
    seal = {"format": CARD_FORMAT, WEIGHTS_SHA256: sha256_of(folder.classifier_weights)}
    write_card(
        folder, folder.classifier_card, {**seal, "class_names": list(class_names), "nonnegative": is_nonnegative}
    )


def is_classifier_sound(folder: RunFolder) -> bool:
    """Tell whether the classifier of a run is undamaged; True for a run without a classifier."""
    if not folder.classifier_weights.exists() and not folder.classifier_card.exists():
        return True
    try:
        card = read_card(folder, folder.classifier_card, must_be_sealed=True)
        return card.get(WEIGHTS_SHA256) == sha256_of(folder.classifier_weights)
    except (RunError, OSError):
        return False


def load_classifier(folder: RunFolder, num_features: int) -> Classifier | None:
    """The classifier of a run; None for runs of other methods and of earlier versions.

    Args:
        folder: folder of the run.
        num_features: dimensions of the vectors that it takes.

    Raises:
        RunError: the classifier is damaged, or of another version.
    """
    path, card_path = folder.classifier_weights, folder.classifier_card
    if not path.exists() and not card_path.exists():
        return None
    remedy = f"write it again with: counterpoint resume {shlex.quote(str(folder.path))}"
    try:
        card = read_card(folder, card_path, must_be_sealed=True)
        if card.get("format") != CARD_FORMAT:
            raise RunError(f"{card_path} has format {card.get('format')}; this version reads {CARD_FORMAT}")
        if not is_classifier_sound(folder):
            raise RunError(f"{path} is damaged (its hash is not the one in {card_path.name}); {remedy}")
        tensors, names = read_tensors(path), card["class_names"]
        if tensors[WEIGHTS].shape != (len(names), num_features):
            raise RunError(f"{path} is not the classifier of this encoder; {remedy}")
        return Classifier(names, tensors[WEIGHTS], tensors.get(BIASES), is_nonnegative=card["nonnegative"])
    except (OSError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}; {remedy}") from None
