"""The kernel sets OHSMC's spread: walks, forgetting and transport, where the posterior is known."""

import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
N, M = 300, 50
rng = np.random.default_rng(0)
data = (np.ones((N, 1)), 0.5 + rng.normal(size=N))  # one weight, known noise: all in closed form
exact = 1 / (1 + N)

network = pb.from_params({"weight": jnp.zeros((1, 1))}, lambda params, inputs: inputs @ params["weight"])
model = pb.partial_bnn(network, "weight", pb.gaussian(1.0))


def build(kernel):
    return pb.ohsmc(model, num_particles=1000, kernel=kernel, optimizer=optax.set_to_zero())


def spread(seen):
    """Variance of the cloud, averaged over the second half of training."""
    clouds = [one.particles for one in seen.posteriors[len(seen.posteriors) // 2 :]]
    return np.mean([np.cov(c.values[:, 0], aweights=np.exp(c.log_weights)) for c in clouds])


def variance(kernel):
    seen = pb.callbacks.Snapshots(every=5)
    pb.fit(build(kernel), data, epochs=EPOCHS, batch_size=M, run=pb.Run(callbacks=[seen]))
    return spread(seen)


variances = np.geomspace(1e-4, 0.03, 6)
found = [variance(pb.kernels.random_walk(v)) for v in variances]
forgetful = variance(pb.kernels.forgetting())
transported = variance(pb.kernels.transport())
fine = np.geomspace(1e-4, 0.03, 100)
formula = (-fine + np.sqrt(fine**2 + 4 * fine / M)) / 2  # where the Kalman recursion settles

figure, ax = plt.subplots(figsize=(8.4, 3.4))
ax.loglog(fine, formula / exact, color="0.6", label="random walk, in theory")
ax.loglog(variances, np.array(found) / exact, "o", color="#0072B2", label="random walk, 1000 particles")
ax.axhline(forgetful / exact, color="#D55E00", lw=4, alpha=0.5, label="forgetting")
ax.axhline(transported / exact, color="#009E73", label="transport, the default")
ax.axhline(1, color="black", ls=":", lw=1, label="the posterior")
ax.set(xlabel="variance of the random walk", ylabel="variance / posterior's")
ax.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
ax.minorticks_off()
figure.legend(loc="outside right center")
figure.savefig("spread.png")
