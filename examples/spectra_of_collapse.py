"""
Spectra of healthy and of collapsed features
============================================

The eigenvalues of the covariance say how many directions an embedding uses. A smooth decay is normal. A *step* is not:
behind it lie directions that carry nothing, which is called dimensional collapse. Nothing is trained here; each set of
features is drawn so that it shows one case.
"""

import matplotlib.pyplot as plt
import torch

from counterpoint.diagnostics.spectra import (
    covariance_spectrum,
    effective_rank,
    isotropic_band,
    rankme,
    singular_values,
    vanished_directions,
)

NUM_SAMPLES, NUM_DIMS = 2000, 64
generator = torch.Generator().manual_seed(0)
noise = torch.randn(NUM_SAMPLES, NUM_DIMS, generator=generator, dtype=torch.float64)
place = torch.arange(1, NUM_DIMS + 1)

embeddings = {
    "isotropic: all directions alike": noise,
    "healthy: falls smoothly": noise * place**-0.5,
    "dimensional collapse: 40 of 64 vanished": noise * torch.where(place > 24, 1e-4, 1.0),
    "nearly one point": torch.ones(NUM_DIMS) + 0.01 * noise,
}

# %%
# No single number shows everything. The effective rank is high for the last set, whose samples nearly coincide, because
# it uses centred features; RankMe does not centre them, and is low there, as it would be for healthy features
# far from the origin. ``cp.diagnose`` looks at spectrum and mean cosine together.

for name, z in embeddings.items():
    spectrum = covariance_spectrum(z)
    vanished = vanished_directions(spectrum, NUM_SAMPLES)
    cosine = float(torch.nn.functional.cosine_similarity(z[:-1], z[1:]).mean())
    print(f"{name:42} effective rank {effective_rank(spectrum):5.1f}  RankMe {rankme(singular_values(z)):5.1f}", end="")
    print(f"  vanished {vanished.count:2d}  mean cosine {cosine:5.2f}")

# %%
# The grey band is where the eigenvalues of 2,000 samples of isotropic features lie, as a share of their mean: even
# without any structure a spectrum is not flat.

low, high = isotropic_band(NUM_SAMPLES, NUM_DIMS)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.fill_between(place, low, high, color="0.8", label="isotropic features, by theory")
for (name, z), line in zip(embeddings.items(), ("-", "-", "-", "--"), strict=True):
    spectrum = covariance_spectrum(z)
    axes.semilogy(place, spectrum / spectrum.mean(), line, label=name)
axes.set(xlabel="direction, by its variance", ylabel="variance, as a share of the mean", ylim=(1e-9, 30))
axes.legend(loc="lower left")
plt.show()
