"""
A loss in your own loop
=======================

A loss of Counterpoint in a plain PyTorch loop, and what it reports: chance, floor, effective negatives.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import counterpoint as cp

torch.manual_seed(0)
samples = torch.randn(512, 32)  # 32 numbers per sample stand for an image
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
loss = cp.losses.InfoNCE(temperature=0.2)
values = []

for step in range(50):
    batch = samples[torch.randperm(len(samples))[:128]]
    z0, z1 = (encoder(batch + 0.1 * torch.randn_like(batch)) for _ in range(2))
    value = loss(z0, z1)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    values.append(value.item())
    if step % 10 == 0:
        attention = loss.attention(z0.detach(), z1.detach())
        effective, num_negatives = attention.mean_effective_negatives, attention.num_negatives
        print(f"step {step:2d}  loss {value.item():.3f}  chance {loss.chance(128):.3f}  floor {loss.floor(128):.3f}")
        print(f"         an anchor attends to {effective:.0f} of {num_negatives} negatives")
print(cp.losses.explain(loss))

# %%
# The curve between its two levels: an encoder that tells nothing apart is at chance, and nothing is below the floor.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(values, label="loss")
axes.axhline(loss.chance(128), linestyle=":", color="C3", label="chance")
axes.axhline(loss.floor(128), linestyle=":", color="C2", label="floor")
axes.set(xlabel="step")
axes.legend()
plt.show()
