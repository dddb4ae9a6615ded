"""
Your own pairwise loss
======================

A pairwise loss from two functions, phi and psi: with exact curvature and linear memory.
"""

import matplotlib.pyplot as plt
import torch

import counterpoint as cp

# L = sum_i phi(sum_j psi(d_i^2 - d_ij^2)): a softplus of each gap, summed, its square root taken.
own = cp.losses.PairLoss(torch.sqrt, torch.nn.functional.softplus)
generator = torch.Generator().manual_seed(0)
z0 = torch.randn(64, 16, generator=generator, dtype=torch.float64).requires_grad_()
z1 = torch.randn(64, 16, generator=generator, dtype=torch.float64)

value = own(z0, z1)
(slope,) = torch.autograd.grad(value, z0, create_graph=True)
direction = torch.randn(z0.shape, generator=generator, dtype=torch.float64)
(curvature,) = torch.autograd.grad((slope * direction).sum(), z0)

step = 1e-5
moved = [torch.autograd.grad(own(z, z1), z)[0] for z in (z0 + step * direction, z0 - step * direction)]
difference = (moved[0] - moved[1]) / (2 * step)
error = float((difference - curvature).norm() / curvature.norm())
print(f"loss {float(value.detach()):.4f}; Hessian times a direction, beside finite differences: error {error:.1e}")
assert error < 1e-6

# The optimal geometry of three classes under the same loss.
print(cp.theory.optimal_geometry([0.5, 0.25, 0.25], loss=cp.losses.InfoNCE(temperature=0.5), num_negatives=64))

# %%
# How much a negative counts under the own loss and under InfoNCE, by its similarity to one anchor.

views = (z0.detach()[:32], z1[:32])
cosines = torch.nn.functional.cosine_similarity(views[0][:1], views[1][1:])
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, loss in (("own", own), ("InfoNCE, temperature 0.5", cp.losses.InfoNCE(temperature=0.5))):
    weights = loss.importance(*views)[0, 33:]
    axes.scatter(cosines, weights / weights.mean(), label=name, s=16)
axes.set(xlabel="cosine of anchor and negative", ylabel="weight / mean weight")
axes.legend()
plt.show()
