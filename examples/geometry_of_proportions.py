"""
Optimal class means for given proportions
=========================================

With a contrastive loss, the means of equal classes form a regular simplex. Where one class is larger
than the others, the others move together, and beyond a threshold they merge: an encoder that follows the loss
perfectly can then no longer tell them apart. Each answer below is an optimum with a certificate.
"""

import matplotlib.pyplot as plt
import numpy as np

from counterpoint import theory
from counterpoint.losses import InfoNCE

SUPERVISED = {"num_negatives": 512, "supervised": True}
threshold = theory.collapse_threshold(3, **SUPERVISED)
print(threshold)

# %%
# Three classes, one large and two of the same size. The means are unit vectors, and these pictures show them
# completely, up to a rotation.

shares = [1 / 3, 0.6, 0.9, 0.99]
figure, panels = plt.subplots(1, 4, figsize=(9, 2.8), subplot_kw={"projection": "polar"}, layout="constrained")
for axes, share in zip(panels, shares, strict=True):
    best = theory.optimal_geometry([share, (1 - share) / 2, (1 - share) / 2], **SUPERVISED)
    apart = float(best.angles[1, 2])
    for angle, colour in ((90, "C0"), (270 - apart / 2, "C1"), (270 + apart / 2, "C2")):
        axes.annotate("", (np.radians(angle), 1), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2})
    axes.set(rticks=[], ylim=(0, 1.05), title=f"{share:.0%} in one class\nothers {apart:.0f}° apart")
    axes.set_xticks([])
plt.show()

# %%
# The angle between the two small classes, for every share of the large one. A lower temperature separates them up to
# larger shares; the number of negatives hardly matters. (The loss is that of training, without labels.)

shares = np.linspace(1 / 3, 0.995, 40)
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for temperature in (1.0, 0.5, 0.2):
    options = {"loss": InfoNCE(temperature=temperature), "num_negatives": 510}
    angles = [theory.optimal_geometry([s, (1 - s) / 2, (1 - s) / 2], **options).angles[1, 2] for s in shares]
    axes.plot(shares, angles, label=f"temperature {temperature}")
axes.set(xlabel="share of the large class", ylabel="angle between the small classes, degrees", ylim=(-5, 125))
axes.legend(loc="lower left")
plt.show()
