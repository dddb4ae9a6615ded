"""
Rare classes
============

What does a contrastive loss do to rare classes, and what separates them again?
"""

import matplotlib.pyplot as plt

from counterpoint import theory

counts = [5000, 400, 60]
shares = [count / sum(counts) for count in counts]

best = theory.optimal_geometry(shares, num_negatives=512, supervised=True)
print(best, end="\n\n")

threshold = theory.collapse_threshold(3, num_negatives=512, supervised=True)
print(threshold, end="\n\n")
print(theory.rebalance(shares, num_negatives=512, supervised=True))

# %%
# The angles between the classes at the optimum. For classes of the same size all would be 120 degrees.

pairs = {"first and second": (0, 1), "first and third": (0, 2), "second and third": (1, 2)}
figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
axes.barh(list(pairs), [float(best.angles[pair]) for pair in pairs.values()], color=["C0", "C0", "C3"])
axes.axvline(120, linestyle=":", color="black")
axes.set(xlabel="angle in degrees", xlim=(0, 185))
plt.show()
