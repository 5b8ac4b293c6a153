"""Everything there is to see of a run: scores in original units, and a page to open in a browser."""

import numpy as np

import partialbayes as pb

rng = np.random.default_rng(0)
x = rng.uniform(-4, 4, size=(300, 1))
y = 50 + 10 * np.sin(2 * x[:, 0]) + 2 * rng.normal(size=300)  # prices, say
train, test = (x[:200], y[:200]), (x[200:], y[200:])

scale = pb.prediction.TargetScale.of(train[1])
model = pb.partial_bnn(pb.mlp([1, 30, 10, 1]), pb.subsets.layer(2), pb.gaussian(pb.learned(1.0)))
seen = pb.callbacks.Snapshots(every=40)
trained = pb.fit(
    pb.ohsmc(model),
    (train[0], scale.apply(train[1])),
    epochs=60,
    batch_size=50,
    run=pb.Run(callbacks=[seen]),
)

predictive = pb.predict(model, trained.posterior, test[0], target_scale=scale)
for name, value in pb.metrics.evaluate(predictive, test[1]).items():
    print(f"{name:<20} {value:8.3f}")
page = pb.report(model, trained, test, target_scale=scale, snapshots=seen, metadata={"data": "a sine"})
print(f"wrote {page}")
