"""Your own Flax model: its last layer random, the rest trained as usual."""

import numpy as np
from flax import nnx

import partialbayes as pb


class Residual(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Linear(1, 16, rngs=rngs)
        self.block = nnx.Linear(16, 16, rngs=rngs)
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.head = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        hidden = nnx.gelu(self.stem(x))
        return self.head(self.norm(hidden + nnx.gelu(self.block(hidden))))


rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, size=(200, 1))
y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=200)

model = pb.partial_bnn(pb.from_nnx(Residual), "head/**", pb.gaussian(pb.learned(1.0)))
print(model.split.describe())

trained = pb.fit(pb.ohsmc(model), (x, y), epochs=100, batch_size=50)
noise = trained.noise["variance"]
predictive = pb.predict(model, trained.posterior, x)
print(f"noise variance {noise:.3f} (true 0.04), RMSE {pb.metrics.rmse(predictive, y):.3f}")
