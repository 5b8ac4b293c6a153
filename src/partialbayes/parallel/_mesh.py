"""Make meshes of devices, and check algorithms against them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes.parallel._sharding import DATA, PARTICLE, PSI, num_parts
from partialbayes.types import Algorithm, Particles


def mesh(particle: int = 1, data: int = 1, psi: int = 1) -> Mesh:
    """Arrange devices in a mesh, for the ``mesh`` argument of `fit`, `refine` and `predict`.

    Particles are divided over the axis ``particle``, rows of a batch over ``data``, and ψ with its
    optimizer over ``psi``: each weight along its longest axis that divides evenly, so that a ψ too large
    for one device fits. Every device holds all log-weights, so the whole cloud is resampled at once.
    Results equal those of one device up to the order of sums.

    Args:
        particle: Number of parts of the particles.
        data: Number of parts of the rows.
        psi: Number of parts of ψ; 1 keeps ψ on every device.

    Returns:
        A mesh of the first ``particle × data × psi`` devices of JAX.

    Raises:
        ValueError: There are fewer devices than parts.

    Example:
        >>> import partialbayes as pb
        >>> pb.parallel.mesh(particle=1).axis_names
        ('particle', 'data', 'psi')
    """
    require_positive_int("particle", particle, "the number of parts of the particles.")
    require_positive_int("data", data, "the number of parts of the rows.")
    require_positive_int("psi", psi, "the number of parts of ψ.")
    devices, needed = jax.devices(), particle * data * psi
    if needed > len(devices):
        raise ValueError(
            f"a mesh of particle={particle} × data={data} × psi={psi} needs {needed} devices, but JAX "
            f"sees only {len(devices)}; use fewer parts, or, to try it on a CPU, set the environment "
            f"variable XLA_FLAGS=--xla_force_host_platform_device_count={needed} before JAX starts."
        )
    shaped = np.array(devices[:needed]).reshape(particle, data, psi)
    return Mesh(shaped, (PARTICLE, DATA, PSI), axis_types=(AxisType.Auto,) * 3)


def as_mesh(mesh: Any) -> Mesh | None:
    """Validate a mesh and let the compiler divide along its axes; None stays None."""
    if mesh is None:
        return None
    require_instance("mesh", mesh, Mesh, "for example parallel.mesh(particle=4).")
    unknown = [name for name in mesh.axis_names if name not in (PARTICLE, DATA, PSI)]
    if unknown:
        raise ValueError(
            f"mesh has an axis {unknown[0]!r}; its axes may only be {PARTICLE!r}, {DATA!r} and {PSI!r}, "
            "as in parallel.mesh(particle=4, data=2)."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def require_divisible(mesh: Mesh | None, algorithm: Algorithm) -> None:
    """Require that the mesh divides the particles of an algorithm evenly."""
    if mesh is None:
        return
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, Particles))
    for node in nodes:
        if isinstance(node, Particles):
            require_even(mesh, node.values.shape[-2])


def require_even(mesh: Mesh | None, num_particles: int) -> None:
    """Require that the mesh divides a number of particles evenly."""
    parts = num_parts(mesh, PARTICLE)
    if num_particles % parts:
        raise ValueError(
            f"num_particles is {num_particles}, which the mesh's axis {PARTICLE!r} of {parts} devices "
            f"does not divide; use num_particles={-(-num_particles // parts) * parts}, or another mesh."
        )
