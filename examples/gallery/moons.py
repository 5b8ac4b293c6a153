"""Two moons: the predictive probability, the boundaries of single particles, where they disagree."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
x, y = make_moons(100, noise=0.3, random_state=0)
model = pb.partial_bnn(pb.mlp([2, 50, 20, 1]), pb.subsets.layer(-1), pb.bernoulli())
algorithm = pb.ohsmc(model)
posterior = pb.fit(algorithm, (x, y), epochs=EPOCHS, batch_size=20).posterior

limits = (-2.4, 3.4, -2.0, 2.4)
across, up = np.meshgrid(np.linspace(*limits[:2], 120), np.linspace(*limits[2:], 120))
predictive = pb.predict(model, posterior, np.stack([across.ravel(), up.ravel()], axis=1))
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2))
pb.plots.decision_boundary(model, posterior, (x, y), limits=limits, resolution=120, ax=axes[0])
axes[0].set_title("boundaries of 20 particles")
information = np.reshape(predictive.mutual_information, across.shape)
shown = axes[1].contourf(across, up, information, 12, cmap="Greys")
figure.colorbar(shown, ax=axes[1], format="%.2f")
for label, color, marker in ((0, "#0072B2", "o"), (1, "#E69F00", "^")):
    look = {"color": color, "marker": marker, "edgecolors": "white", "linewidths": 0.6}
    axes[1].scatter(*x[y == label].T, s=24, **look)
axes[1].set(title="mutual information (nats)", xticks=[], yticks=[], xlim=limits[:2], ylim=limits[2:])
axes[1].spines[:].set_visible(False)
figure.savefig("moons.png")
