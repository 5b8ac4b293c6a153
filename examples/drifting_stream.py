"""A stream that drifts, followed batch by batch; the picture shows predictions, truth and ESS."""

import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).parent / "gallery" / "style.mplstyle")
BATCHES, ROWS = (int(sys.argv[1]) if len(sys.argv) > 1 else 80), 20
GRID = np.linspace(-3, 3, 61)[:, None]
SHOWN = (-1.5, 0.0, 1.5)


def truth(x, when):
    """The curve at a share of the stream: it shifts, and half-way it turns over."""
    return (1 if when < 0.5 else -1) * np.sin(x + 2.0 * when) + when


rng = np.random.default_rng(0)
model = pb.partial_bnn(pb.mlp([1, 30, 10, 1]), pb.subsets.layer(-1), pb.gaussian(pb.learned(0.1)))
algorithm = pb.ohsmc(model)
follower, paths, bands, loss, seconds = None, [], [], [], []
for batch in range(BATCHES):
    when = batch / BATCHES
    x = rng.uniform(-3, 3, size=(ROWS, 1))
    y = truth(x[:, 0], when) + 0.2 * rng.normal(size=ROWS)
    before = time.perf_counter()
    if follower is None:
        follower = pb.online.start(algorithm, (x, y), window_size=200)
        loss.append(np.nan)
    else:
        follower, info = pb.online.update(follower, (x, y))
        loss.append(float(info["loss"][0]))
    predictive = pb.predict(model, follower.posterior, np.asarray(SHOWN)[:, None])
    paths.append(np.asarray(predictive.mean))
    bands.append(np.asarray(predictive.interval(0.9)))
    seconds.append(time.perf_counter() - before)

times = np.arange(BATCHES) / BATCHES
curves = np.array([[truth(x, when) for x in SHOWN] for when in times])
error = np.abs(np.array(paths) - curves)
late = error[-BATCHES // 5 :].mean()
print(f"error in the last fifth {late:.3f}, spread of the truth {curves.std():.3f}")
print(f"milliseconds per batch: {1e3 * np.median(seconds[3:]):.1f}")
figure, axes = plt.subplots(2, 1, figsize=(7.6, 4.6), sharex=True, height_ratios=(3, 1))
for index, x in enumerate(SHOWN):
    color = f"C{index}"
    axes[0].plot(times, curves[:, index], "--", color=color, lw=1)
    axes[0].plot(times, np.array(paths)[:, index], color=color, label=f"x = {x}")
    low, high = np.array(bands)[:, :, index].T
    axes[0].fill_between(times, low, high, color=color, alpha=0.15, lw=0)
axes[0].set(ylabel="y", title="Following a stream that drifts, and turns over half-way (dashed: truth)")
figure.legend(loc="outside lower center", ncols=3)
axes[1].plot(times, loss, color="#22303c", lw=1)
axes[1].set(xlabel="share of the stream", ylabel="loss of new rows")
figure.savefig("drifting_stream.png")
