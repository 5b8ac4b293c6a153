"""Three kinds of noise on the same data: fixed too large, learned, and predicted for each input."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 150
rng = np.random.default_rng(0)
x = rng.uniform(0, 3, size=(400, 1))
y = np.sin(2 * x[:, 0]) + (0.05 + 0.2 * x[:, 0]) * rng.normal(size=400)
train, test = (x[:300], y[:300]), (x[300:], y[300:])
grid = np.linspace(0, 3, 150)[:, None]
likelihoods = {
    "fixed at 1": (pb.gaussian(1.0), 1),
    "learned": (pb.gaussian(pb.learned(1.0)), 1),
    "predicted": (pb.likelihoods.heteroscedastic(), 2),
}

figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.3), sharey=True)
for ax, (name, (likelihood, outputs)) in zip(axes, likelihoods.items(), strict=True):
    model = pb.partial_bnn(pb.mlp([1, 50, 20, outputs]), pb.subsets.layer(-1), likelihood)
    algorithm = pb.ohsmc(model)
    posterior = pb.fit(algorithm, train, epochs=EPOCHS, batch_size=50).posterior
    score = -pb.prediction.log_predictive_density(model, posterior, test).mean()
    pb.plots.predictive_bands(pb.predict(model, posterior, grid), test, ax=ax)
    ax.set(title=f"noise {name}\ntest NLPD {score:.2f}", ylim=(-3, 3))
    ax.set_ylabel("target" if ax is axes[0] else "")
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure.savefig("noise.png")
