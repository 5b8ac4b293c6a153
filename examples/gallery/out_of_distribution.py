"""Digits 0 to 4 were trained on; 5 to 9 were not. Which uncertainty separates them?"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
images, labels = load_digits(return_X_y=True)
images = images / 16.0 - 0.5
known = labels < 5
train, test = (images[known][:700], labels[known][:700]), images[known][700:]
strange = images[~known]

model = pb.partial_bnn(pb.mlp([64, 50, 20, 5]), pb.subsets.layer(1), pb.categorical())
algorithm = pb.ohsmc(model)
posterior = pb.fit(algorithm, train, epochs=EPOCHS, batch_size=50).posterior
inside, outside = (pb.predict(model, posterior, rows) for rows in (test, strange))

figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.1))
for ax, name in zip(axes, ("expected_entropy", "mutual_information", "entropy"), strict=True):
    usual, unusual = (np.asarray(getattr(side, name)) for side in (inside, outside))
    bins = np.linspace(0, max(usual.max(), unusual.max()), 25)
    ax.hist(usual, bins, density=True, color="#0072B2", alpha=0.6, label="digits 0–4, held out")
    ax.hist(unusual, bins, density=True, color="#E69F00", alpha=0.6, label="digits 5–9")
    ax.set(xlabel="nats", yscale="log")
    ax.set_title(f"{name.replace('_', ' ')}\nAUROC {pb.metrics.auroc(usual, unusual):.3f}")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure.savefig("out_of_distribution.png")
