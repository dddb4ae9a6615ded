"""Scikit-learn's handwritten digits."""

from collections.abc import Mapping

import numpy as np
import torch

from counterpoint.core.data_settings import SourceSettings
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.source import NamedSource, Progress, Source, fixed_labels, memory_source, refuse_split


def open_digits(settings: SourceSettings, progress: Progress) -> Source:
    """Open the handwritten digits that ship with scikit-learn: 1,797 grey images of 8 x 8 pixels with labels."""
    from sklearn.datasets import load_digits  # deferred: scikit-learn's data sets take half a second to import

    # Settings are refused before the data are loaded.
    refuse_split("digits", settings.split)
    fixed_labels("digits", None, settings)
    pixels, target = load_digits(return_X_y=True)
    images = torch.from_numpy((pixels * (255.0 / 16.0)).round().astype(np.uint8)).reshape(-1, 1, 8, 8)  # 16 is white
    return memory_source(
        "digits", images, fixed_labels("digits", number_labels(np.asarray(target), len(images)), settings)
    )


CATALOGUE: Mapping[str, NamedSource] = {
    "digits": NamedSource(
        "1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn", open_digits, has_files=False
    ),
}
