"""
What training will see
======================

Two views of a picture are pulled together, so whatever differs between views is what the encoder learns to ignore.
Look at them before you train: a view in which you cannot recognise the subject teaches nothing, and where colour tells
your classes apart, views that change colours remove what you need.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import counterpoint as cp

corners = [("china.jpg", 130, 60), ("china.jpg", 200, 330), ("flower.jpg", 60, 200), ("flower.jpg", 140, 320)]
tiles = np.stack([load_sample_image(name)[top : top + 200, left : left + 200][::2, ::2] for name, top, left in corners])


def sheet(title: str, **views: object) -> None:
    """Draw four samples, one per row, the original first."""
    with tempfile.TemporaryDirectory() as folder:
        page = cp.preview(tiles, out=Path(folder) / "views.png", num_samples=4, num_views=6, quiet=True, views=views)
        picture = plt.imread(page)
    axes = plt.figure(figsize=(8, 4.8), layout="constrained").gca()
    axes.imshow(picture)
    axes.axis("off")
    axes.set_title(title)
    plt.show()
    print(f"{title}: four samples and six views of each")


# %%
# As chosen for photographs: crops, mirror images, changed colours, now and then no colours at all.

sheet("photos", preset="photos")

# %%
# Gentler: large crops, and colours stay. For pictures of things whose place or colour matters.

sheet("photos, large crops, no change of colours", preset="photos", crop_scale=(0.6, 1.0), jitter=0.0, grayscale=0.0)
