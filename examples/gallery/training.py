"""What to look at first: loss, validation score, effective sample size, and ancestors."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 80
rng = np.random.default_rng(0)
x = rng.uniform(-4, 4, size=(300, 1))
y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=300)
model = pb.partial_bnn(pb.mlp([1, 30, 10, 1]), pb.subsets.layer(-1), pb.gaussian(pb.learned(1.0)))
algorithm = pb.ohsmc(model, num_particles=200, kernel=pb.kernels.random_walk(0.001))
history = pb.fit(
    algorithm,
    (x[:200], y[:200]),
    epochs=EPOCHS,
    batch_size=50,
    validation=(x[200:], y[200:]),
).history

figure, axes = plt.subplots(1, 3, figsize=(8.6, 2.7))
pb.plots.trace(history, "loss", ax=axes[0])
pb.plots.validation(history, ax=axes[1])
pb.plots.ancestry(history, ax=axes[2])
figure.savefig("training.png")
