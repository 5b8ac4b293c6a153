"""Refine: the posterior at the ψ that training found, beside the particles training left."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, size=(100, 1))
y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.normal(size=100)
model = pb.partial_bnn(pb.mlp([1, 20, 5, 1]), pb.subsets.layer(-1), pb.gaussian(0.04))
algorithm = pb.ohsmc(model, num_particles=500, kernel=pb.kernels.random_walk(0.01))
cheap = pb.fit(algorithm, (x, y), epochs=EPOCHS, batch_size=20).posterior
refined = pb.refine(model, cheap, (x, y), num_particles=500)

figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.0))
shown = {"OHSMC, random walk 0.01": cheap, "refined": refined.posterior}
for ax, (title, posterior) in zip(axes[:2], shown.items(), strict=True):
    pb.plots.marginals(posterior.particles, ax=ax)
    ax.set(title=title, xlabel="value")
shared = [min(ax.get_xlim()[0] for ax in axes[:2]), max(ax.get_xlim()[1] for ax in axes[:2])]
axes[0].set_xlim(shared)
axes[1].set_xlim(shared)
steps = 1 + np.arange(len(refined.temperatures))
axes[2].semilogy(steps, refined.temperatures, "o-", color="#0072B2", ms=4)
axes[2].set(xlabel="step of refine", ylabel="temperature")
axes[2].set_title(f"log Ẑ = {refined.log_evidence:.1f} ± {refined.standard_error:.1f}")
figure.savefig("refined.png")
