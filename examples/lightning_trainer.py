"""
In a PyTorch Lightning trainer
==============================

A loss of Counterpoint in a Lightning trainer, with online kNN, findings, and the loss beside chance and floor.
"""

import matplotlib.pyplot as plt
import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import counterpoint as cp
from counterpoint.lightning import ContrastiveModule, HealthFindings, OnlineKNN

pl.seed_everything(0, verbose=False)
pixels, classes = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
x = pixels.float() / 16
train, held_out = TensorDataset(x[:1400], x[:1400]), (x[1400:], classes[1400:])
encoder = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 64))


def two_views(batch: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Two views of each sample: its pixels with noise."""
    samples = torch.stack([sample for sample, _ in batch])
    return samples + 0.3 * torch.randn_like(samples), samples + 0.3 * torch.randn_like(samples)


module = ContrastiveModule(encoder, cp.losses.InfoNCE(0.2), projector=nn.Linear(64, 32), optim={"learning_rate": 2e-3})
health = HealthFindings(held_out, every=2, stop_after=3)
callbacks = [OnlineKNN((x[:1400], classes[:1400]), held_out), health]
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", callbacks=callbacks, logger=False, enable_checkpointing=False)
trainer.fit(module, DataLoader(train, batch_size=128, shuffle=True, drop_last=True, collate_fn=two_views))
for name, value in sorted(trainer.callback_metrics.items()):
    print(f"{name:22} {float(value):.3f}")
print(health.findings[4].verdict)

# %%
# Digits that were held out (left), and the training digits that lie nearest to each.

with torch.no_grad():
    bank, queries = (nn.functional.normalize(encoder.eval()(part)) for part in (x[:1400], x[1400:1405]))
nearest = (queries @ bank.T).topk(8).indices
figure, panels = plt.subplots(5, 9, figsize=(6, 3.4), layout="constrained")
for row, query, neighbours in zip(panels, x[1400:1405], nearest, strict=True):
    for axes, picture in zip(row, [query, *x[neighbours]], strict=True):
        axes.imshow(picture.reshape(8, 8), cmap="Greens" if picture is query else "gray_r")
        axes.axis("off")
plt.show()
