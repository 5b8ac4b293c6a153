"""The flow of particles: from the prior into the crescent, while ψ is being learned."""

import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
rng = np.random.default_rng(3)
data = (np.zeros((100, 1)), 0.5 + rng.normal(size=100))


def apply(params, inputs):
    phi, psi = params["phi"], params["psi"]
    return jnp.broadcast_to(phi[1] / psi + 0.5 * (phi[0] ** 2 + psi**2), inputs.shape[:1])


network = pb.from_params({"phi": jnp.zeros(2), "psi": jnp.array(0.5)}, apply)
model = pb.partial_bnn(network, "phi", pb.gaussian(1.0), pb.priors.normal(scale=np.sqrt([2.0, 1.0])))
algorithm = pb.ohsmc(
    model, num_particles=1000, kernel=pb.kernels.random_walk(0.005), optimizer=optax.adam(0.02)
)
steps = 10 * EPOCHS
seen = pb.callbacks.Snapshots(every=1)
pb.fit(algorithm, data, epochs=EPOCHS, batch_size=10, run=pb.Run(callbacks=[seen]))

chosen = [0, 2, steps // 20, steps // 5, steps - 1]  # most happens early
few = pb.callbacks.Snapshots(every=1)
few.steps, few.posteriors = [1 + i for i in chosen], [seen.posteriors[i] for i in chosen]
figure, axes = plt.subplots(1, 5, figsize=(8.6, 2.3), sharey=True)
pb.plots.flow(few, ax=axes)
figure.savefig("flow.png")
