"""Which weights should be random? Candidates under one budget, and a recommendation."""

import numpy as np

import partialbayes as pb

rng = np.random.default_rng(0)
x = rng.uniform(-6.0, 6.0, size=(150, 1))
y = x[:, 0] * np.sin(x[:, 0] * np.tanh(x[:, 0])) + rng.normal(size=150)
network = pb.mlp([1, 10, 10, 1])

advice = pb.advise(
    network,
    (x, y),
    candidates={"first and last": pb.subsets.layer(0, -1)},
    epochs=40,
    num_particles=50,
    batch_size=20,
    progress=False,
)
print(advice)
pb.plots.advice(advice).figure.savefig("which_weights.png", dpi=150)

# The recommended subset goes where any other would.
model = pb.partial_bnn(network, advice.recommended.subset, pb.gaussian(pb.learned(1.0)))
