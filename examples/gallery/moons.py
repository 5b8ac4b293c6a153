"""Two moons: the predictive probability, the boundaries of single particles, where they disagree."""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import partialbayes as pb

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
x, y = make_moons(100, noise=0.3, random_state=0)
model = pb.partial_bnn(pb.mlp([2, 50, 20, 5, 1]), pb.subsets.layer(2), pb.bernoulli())
algorithm = pb.ohsmc(model)
posterior = pb.fit(algorithm, (x, y), epochs=EPOCHS, batch_size=20).posterior

limits = (-2.4, 3.4, -2.0, 2.4)
across, up = np.meshgrid(np.linspace(*limits[:2], 60), np.linspace(*limits[2:], 60))
predictive = pb.predict(model, posterior, np.stack([across.ravel(), up.ravel()], axis=1))
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), sharey=True, layout="constrained")
pb.plots.decision_boundary(model, posterior, (x, y), limits=limits, resolution=60, ax=axes[0])
axes[0].set_title("boundaries of 20 particles")
information = np.reshape(predictive.mutual_information, across.shape)
shown = axes[1].contourf(across, up, information, 12, cmap="magma_r")
figure.colorbar(shown, ax=axes[1], format="%.2f")
axes[1].scatter(*x.T, c="white", edgecolors="0.2", s=14, linewidths=0.6)
axes[1].set(title="mutual information", xlabel="input 0")
figure.savefig("moons.png", dpi=80)
