"""
Rare classes
============

What does a contrastive loss do to rare classes, and what separates them again?
"""

from counterpoint import theory

counts = [5000, 400, 60]
shares = [count / sum(counts) for count in counts]

best = theory.optimal_geometry(shares, num_negatives=512, supervised=True)
print(best, end="\n\n")

threshold = theory.collapse_threshold(3, num_negatives=512, supervised=True)
print(threshold, end="\n\n")
print(theory.rebalance(shares, num_negatives=512, supervised=True))
