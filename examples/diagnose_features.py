"""
Is a representation healthy?
============================

Features may come from anywhere: here one set is fine and one has collapsed. Each finding says what was measured, why
it matters, and what to try.
"""

import matplotlib.pyplot as plt
import numpy as np

import counterpoint as cp

generator = np.random.default_rng(0)
labels = np.arange(600) % 3
centre = generator.normal(size=(3, 32))
healthy = (centre[labels] + 0.5 * generator.normal(size=(600, 32))).astype("float32")
collapsed = (np.ones(32) + 0.01 * generator.normal(size=(600, 32))).astype("float32")

for name, features in (("healthy", healthy), ("collapsed", collapsed)):
    print(name, cp.diagnose(features, labels=labels), sep="\n", end="\n\n")

# %%
# The cosines of all pairs of samples say why: collapsed features point the same way.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, features in (("healthy", healthy), ("collapsed", collapsed)):
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
    axes.hist(cosines, bins=np.linspace(-1, 1.02, 60), label=name, alpha=0.7)
axes.set(xlabel="cosine of two samples", ylabel="pairs", yscale="log")
axes.legend()
plt.show()
