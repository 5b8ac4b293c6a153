"""Heteroscedastic regression: the network predicts the noise along with the mean."""

import numpy as np

import partialbayes as pb

rng = np.random.default_rng(0)
x = rng.uniform(0, 3, size=(400, 1))
noise = 0.05 + 0.3 * x[:, 0]  # grows with x
y = np.sin(2 * x[:, 0]) + noise * rng.normal(size=400)
train, test = (x[:300], y[:300]), (x[300:], y[300:])

# Two outputs: the mean, and what becomes the variance. A few targets are missing.
train[1][::25] = np.nan
likelihood = pb.likelihoods.allow_missing(pb.likelihoods.heteroscedastic(beta=0.5))
model = pb.partial_bnn(pb.mlp([1, 50, 20, 2]), pb.subsets.layer(-1), likelihood)
trained = pb.fit(pb.ohsmc(model), train, epochs=60, batch_size=50, validation=test)

grid = np.array([[0.5], [1.5], [2.5]])
predictive = pb.predict(model, trained.posterior, grid)
for point, deviation in zip(grid[:, 0], predictive.std, strict=True):
    truth = 0.05 + 0.3 * point
    print(f"x = {point}: standard deviation {deviation:.2f}, the noise's is {truth:.2f}")
scores = pb.metrics.evaluate(pb.predict(model, trained.posterior, test[0]), test[1])
print(f"NLPD {scores['nlpd']:.3f}; {100 * scores['coverage']:.0f} % inside the 90 % intervals")
