"""Which weights should be random? Each layer, the biases and the top ten, under one budget."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
rng = np.random.default_rng(0)
x = rng.uniform(-6.0, 6.0, size=(150, 1))
y = x[:, 0] * np.sin(x[:, 0] * np.tanh(x[:, 0])) + rng.normal(size=150)
found = pb.advise(
    pb.mlp([1, 10, 10, 1]), (x, y), epochs=EPOCHS, num_particles=100, batch_size=20, progress=False
)
print(found)
figure, ax = plt.subplots(figsize=(6, 3))
pb.plots.advice(found, ax=ax)
figure.savefig("advice.png")
