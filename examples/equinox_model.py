"""Your own Equinox model: a classifier whose output layer is random."""

import equinox as eqx
import jax
import numpy as np

import partialbayes as pb


class Classifier(eqx.Module):
    hidden: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    dropout: eqx.nn.Dropout
    output: eqx.nn.Linear

    def __init__(self, key):
        key_hidden, key_output = jax.random.split(key)
        self.hidden = eqx.nn.Linear(2, 16, key=key_hidden)
        self.norm = eqx.nn.LayerNorm(16)
        self.dropout = eqx.nn.Dropout(0.1)  # off: the particles take its place
        self.output = eqx.nn.Linear(16, 3, key=key_output)

    def __call__(self, x, key=None):
        return self.output(self.dropout(jax.nn.relu(self.norm(self.hidden(x))), key=key))


rng = np.random.default_rng(0)
labels = rng.integers(0, 3, size=200)
x = np.array([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])[labels] + 0.7 * rng.normal(size=(200, 2))

model = pb.partial_bnn(pb.from_equinox(Classifier), pb.subsets.output_layer(), pb.categorical())
trained = pb.fit(pb.ohsmc(model), (x, labels), epochs=30, batch_size=50)
probabilities = pb.predict(model, trained.posterior, x).mean
print(f"accuracy {pb.metrics.accuracy(probabilities, labels):.2f}")
