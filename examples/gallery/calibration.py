"""Is the model as sure as it should be? PIT and coverage of numbers, reliability of classes."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, size=(1200, 2))
signal = np.sin(x[:, 0]) + 0.5 * x[:, 1]
y = signal + 0.3 * rng.normal(size=1200)
label = (signal + 0.5 * rng.logistic(size=1200) > 0).astype(int)


def predicted(likelihood, targets):
    model = pb.partial_bnn(pb.mlp([2, 20, 10, 1]), pb.subsets.layer(1), likelihood)
    algorithm = pb.ohsmc(model)
    data = (x[:300], targets[:300])
    posterior = pb.fit(algorithm, data, epochs=EPOCHS, batch_size=50).posterior
    return pb.predict(model, posterior, x[300:])


numbers, classes = predicted(pb.gaussian(pb.learned(1.0)), y), predicted(pb.bernoulli(), label)
figure, axes = plt.subplots(1, 3, figsize=(8.6, 2.8))
pb.plots.pit(numbers, y[300:], ax=axes[0])
pb.plots.coverage(numbers, y[300:], ax=axes[1])
pb.plots.reliability(classes.mean, label[300:], bins=10, ax=axes[2])
axes[2].set_xlabel("confidence")
figure.savefig("calibration.png")
