"""Regression with a gap in the data: one point (MAP) beside a partly random network."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-4, -1, 150), rng.uniform(1, 4, 150)])[:, None]
y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=300)
grid = np.linspace(-6, 6, 200)[:, None]

model = pb.partial_bnn(pb.mlp([1, 50, 20, 1]), pb.subsets.layer(-1), pb.gaussian(pb.learned(1.0)))
first = pb.fit(pb.map_estimate(model), (x, y), epochs=EPOCHS, batch_size=50).posterior
algorithm = pb.ohsmc(model)
second = pb.fit(algorithm, (x, y), epochs=EPOCHS, batch_size=50).posterior

figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
shown = {"MAP: one point": first, "OHSMC: 21 random weights": second}
for ax, (title, posterior) in zip(axes, shown.items(), strict=True):
    pb.plots.predictive_bands(pb.predict(model, posterior, grid), (x, y), ax=ax)
    ax.set(title=title, ylim=(-3.2, 3.2))
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure.savefig("bands.png")
