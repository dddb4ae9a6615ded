"""
Train on an array
=================

Train on an array of pictures, load the encoder, and use it like any torch module.
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits

import counterpoint as cp

digits = load_digits()
pictures = (digits.images / 16).astype("float32")  # (n, height, width), from 0 to 1

with tempfile.TemporaryDirectory() as folder:
    run = cp.train(data=pictures, method="simclr", out=Path(folder) / "run", epochs=3, seed=0)
    encoder = cp.load(run.path)
    representation = encoder.represent(pictures[:100])
    print(f"represent: {tuple(representation.shape)}, embed: {tuple(encoder.embed(pictures[:100]).shape)}")
    print(cp.evaluate(run, data=pictures, labels=digits.target))
