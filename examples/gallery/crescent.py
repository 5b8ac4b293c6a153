"""The crescent: where the posterior is, by quadrature, and where three methods put their particles."""

import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
rng = np.random.default_rng(3)
y = 0.5 + rng.normal(size=100)
data = (np.zeros((100, 1)), y)


def mean(phi, psi):
    return phi[1] / psi + 0.5 * (phi[0] ** 2 + psi**2)


def apply(params, inputs):
    return jnp.broadcast_to(mean(params["phi"], params["psi"]), inputs.shape[:1])


network = pb.from_params({"phi": jnp.zeros(2), "psi": jnp.array(0.5)}, apply)
model = pb.partial_bnn(network, "phi", pb.gaussian(1.0), pb.priors.normal(scale=np.sqrt([2.0, 1.0])))
adam = optax.adam(optax.exponential_decay(0.1, transition_steps=10, decay_rate=0.96))


def trained(kernel):
    algorithm = pb.ohsmc(model, num_particles=1000, kernel=kernel, optimizer=adam)
    return pb.fit(algorithm, data, epochs=EPOCHS, batch_size=10).posterior


default = trained(pb.kernels.transport())
posteriors = {
    "OHSMC, random walk 0.001": trained(pb.kernels.random_walk(0.001)),
    "OHSMC, transport": default,
    "then refine": pb.refine(model, default, data, num_particles=1000).posterior,
}
across, up = np.meshgrid(np.linspace(-3.2, 3.2, 200), np.linspace(-3.2, 1.4, 200))
figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.1), sharey=True)
for ax, (name, posterior) in zip(axes, posteriors.items(), strict=True):
    psi = float(posterior.psi.network["psi"])
    center = mean((across, up), psi)
    log_density = -(across**2) / 4 - up**2 / 2 - 50 * (center - y.mean()) ** 2
    ax.contour(
        across, up, np.exp(log_density - log_density.max()), [0.05, 0.4], colors="0.45", linewidths=1
    )
    pb.plots.pairs(posterior.particles, dims=(0, 1), ax=ax)
    ax.set(title=f"{name}\nψ = {psi:.2f}", xlabel="φ₀", ylabel="φ₁" if ax is axes[0] else "")
    ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 1.4))
figure.savefig("crescent.png")
