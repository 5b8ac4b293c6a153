"""Regression with a gap in the data: one point (MAP) beside a partly random network."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
rng = np.random.default_rng(1)
x = np.concatenate([rng.uniform(-4, -1, 60), rng.uniform(1.5, 4, 60)])[:, None]
y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.normal(size=120)
grid = np.linspace(-6, 6, 200)[:, None]

model = pb.partial_bnn(pb.mlp([1, 30, 10, 1]), pb.subsets.layer(1), pb.gaussian(pb.learned(0.1)))
first = pb.fit(pb.map_estimate(model), (x, y), epochs=EPOCHS, batch_size=30).posterior
algorithm = pb.ohsmc(model)
second = pb.fit(algorithm, (x, y), epochs=EPOCHS, batch_size=30).posterior

figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.0), sharey=True, layout="constrained")
shown = {"MAP: one point": first, "OHSMC: 310 random weights": second}
for ax, (title, posterior) in zip(axes, shown.items(), strict=True):
    pb.plots.predictive_bands(pb.predict(model, posterior, grid), (x, y), ax=ax)
    ax.set(title=title, ylim=(-3.2, 3.2))
    ax.get_legend().remove()
figure.savefig("bands.png", dpi=90)
