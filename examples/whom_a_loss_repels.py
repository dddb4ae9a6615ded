"""
Which vectors a loss repels, and how much
=========================================

A pairwise loss gives each pair an importance alpha: the weight with which it pushes the pair apart. Two questions are
answered by drawing it as a matrix, with an anchor per row. *Which pairs are negatives at all?* (white cells are not.)
*How much does each count?* Here 6 samples in two groups, both views of them: 12 anchors, first view before second.
"""

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import normalize

import counterpoint as cp

generator = torch.Generator().manual_seed(1)
centre = torch.randn(2, 8, generator=generator).repeat_interleave(3, dim=0)
z0, z1 = (normalize(centre + 0.6 * torch.randn(6, 8, generator=generator)) for _ in range(2))

# %%
# The mask: which vectors repel an anchor
# ---------------------------------------
# Losses of the same name differ in it between libraries. SimCLR's has both views of every
# other sample; with ``negatives="cross-view"`` an anchor meets the other view only, with ``"same-view"`` its own only.

figure, panels = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axes, negatives in zip(panels, ("two-view", "cross-view", "same-view"), strict=True):
    alpha = cp.losses.InfoNCE(temperature=0.5, negatives=negatives).importance(z0, z1)
    axes.imshow(alpha > 0, cmap="Blues", vmax=1.6)
    axes.set(title=negatives, xlabel="repels", xticks=(0, 6), yticks=(0, 6), xticklabels="01", yticklabels="01")
panels[0].set_ylabel("anchor, by view")
plt.show()

# %%
# The importance: how much each of them counts
# --------------------------------------------
# Every row is divided by its sum. A low temperature and the rule of alpha-CL look at the nearest vectors; the binary
# classifier of MIO is gentler; a linear loss weighs all equally; a triplet loss ignores those that are far enough.

losses = {
    "InfoNCE, temperature 1": cp.losses.InfoNCE(temperature=1.0),
    "InfoNCE, temperature 0.1": cp.losses.InfoNCE(temperature=0.1),
    "MIO v1, temperature 0.5": cp.losses.MIOv1(temperature=0.5),
    "alpha-CL, direct rule": cp.losses.AlphaCL(cp.losses.Direct(temperature=0.5, exponent=4.0)),
    "triplet": cp.losses.Triplet(margin=0.2),
    "linear": cp.losses.LinearTriplet(),
}
figure, panels = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
for axes, (name, loss) in zip(panels.flat, losses.items(), strict=True):
    alpha = loss.importance(z0, z1)
    share = alpha / alpha.sum(dim=1, keepdim=True).clamp_min(1e-12)
    drawn = axes.imshow(share.where(share > 0, torch.nan), cmap="viridis", vmin=0, vmax=0.5)
    axes.set(title=name, xticks=(0, 6), yticks=(0, 6), xticklabels="01", yticklabels="01")
figure.colorbar(drawn, ax=panels, shrink=0.6, label="share of the anchor's repulsion")
plt.show()

# %%
# The same in one number per loss: the effective number of negatives of an anchor.

for name, loss in losses.items():
    if name != "triplet":  # whose anchors may attend to none
        attention = cp.losses.Attention.of_importance(loss.importance(z0, z1))
        print(f"{name:26} {attention.mean_effective_negatives:4.1f} of {attention.num_negatives}")
