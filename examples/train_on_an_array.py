"""
Train on an array
=================

Train on an array of pictures, load the encoder, and use it like any torch module.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import counterpoint as cp

digits = load_digits()
pictures = (digits.images / 16).astype("float32")  # (n, height, width), from 0 to 1

with tempfile.TemporaryDirectory() as folder:
    run = cp.train(data=pictures, method="simclr", out=Path(folder) / "run", epochs=3, seed=0)
    encoder = cp.load(run.path)
    representation = encoder.represent(pictures[:100])
    print(f"represent: {tuple(representation.shape)}, embed: {tuple(encoder.embed(pictures[:100]).shape)}")
    print(cp.evaluate(run, data=pictures, labels=digits.target))
    every = PCA(2).fit_transform(encoder.represent(pictures))

# %%
# All digits on the two first principal components of the representation, with colours by class.

figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.scatter(*every.T, c=digits.target, cmap="tab10", s=6)
axes.set(xlabel="first component", ylabel="second component")
plt.show()
