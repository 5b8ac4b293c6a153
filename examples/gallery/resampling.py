"""How noisy is resampling? The number of copies of each particle, by scheme, over many draws."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import partialbayes as pb

plt.style.use(Path(__file__).with_name("style.mplstyle"))
DRAWS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
J = 100
log_weights = jax.nn.log_softmax(-0.5 * jnp.linspace(-3.0, 3.0, J) ** 2)
particles = pb.types.Particles(jnp.arange(float(J))[:, None], log_weights)
keys = jax.random.split(jax.random.key(0), DRAWS)
expected = J * np.exp(log_weights)

figure, ax = plt.subplots(figsize=(7.2, 3.4))
schemes = ("multinomial", "residual", "stratified", "systematic")
for color, name in zip(("#0072B2", "#E69F00", "#009E73", "#CC79A7"), schemes, strict=True):
    scheme = getattr(pb.resampling, name)
    ancestors = jax.vmap(lambda key, scheme=scheme: scheme(key, particles)[1])(keys)
    copies = jax.vmap(lambda a: jnp.bincount(a, length=J))(ancestors)
    ax.plot(expected, copies.var(axis=0), ".", ms=4, color=color, label=name)
ax.set(xlabel="expected number of copies", ylabel="variance of the number")
figure.legend(loc="outside right center")
figure.savefig("resampling.png")
