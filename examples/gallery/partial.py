"""How much should be random? The same network with more and more of its layers random."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
rng = np.random.default_rng(1)
x = np.concatenate([rng.uniform(-4, -1, 40), rng.uniform(1.5, 4, 40)])[:, None]
y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.normal(size=80)
grid = np.linspace(-6, 6, 150)[:, None]
network = pb.mlp([1, 20, 10, 1])

figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.2), sharey=True)
choices = {"last layer": (2,), "middle layer": (1,), "all layers": (0, 1, 2)}
for ax, (name, layers) in zip(axes, choices.items(), strict=True):
    model = pb.partial_bnn(network, pb.subsets.layer(*layers), pb.gaussian(pb.learned(0.1)))
    algorithm = pb.ohsmc(model)
    posterior = pb.fit(algorithm, (x, y), epochs=EPOCHS, batch_size=20).posterior
    pb.plots.predictive_bands(pb.predict(model, posterior, grid), (x, y), ax=ax)
    ax.set(title=f"{name}: {model.split.dim} random", ylim=(-3.2, 3.2))
    ax.set_ylabel("target" if ax is axes[0] else "")
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure.savefig("partial.png")
