"""
Readable dimensions
===================

NCL is SimCLR with non-negative embeddings. Its dimensions are sparse, and many of them mean one thing: the samples
that activate a dimension most look alike. Both methods are trained for some seconds on handwritten digits, without
labels; then each row of a picture shows the samples that activate one dimension most.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import counterpoint as cp
from counterpoint.diagnostics.concepts import class_purity, sparsity, top_concepts

digits = load_digits()
pictures = (digits.images / 16).astype("float32")
labels = torch.as_tensor(digits.target)

embeddings = {}
with tempfile.TemporaryDirectory() as folder:
    for method in ("simclr", "ncl"):
        run = cp.train(pictures, method=method, out=Path(folder) / method, epochs=15, seed=0, quiet=True)
        embeddings[method] = torch.as_tensor(cp.load(run).embed(pictures))

# %%
# Labels are used here only, to count: of the samples that activate a dimension, how many belong to its main class?

for method, z in embeddings.items():
    purity = class_purity(z, labels)
    print(f"{method:7} {sparsity(z):4.0%} of the entries are zero; consistency {purity.consistency:.2f} (chance 0.10)")

# %%
# Rows are the dimensions with the largest mean activation, columns the digits that activate them most.

for method, z in embeddings.items():
    concepts = top_concepts(z, num_concepts=6, num_samples=12)
    figure, panels = plt.subplots(len(concepts), 12, figsize=(8, 4.2), layout="constrained")
    for row, concept in zip(panels, concepts, strict=True):
        for axes in row:
            axes.axis("off")
        for axes, sample in zip(row, concept.top, strict=False):
            axes.imshow(pictures[sample], cmap="gray_r")
    figure.suptitle(f"{method}: six dimensions, and the digits that activate each most")
    plt.show()
