"""Meshes of devices: made, and checked against what is to run on them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from partialbayes._utils.checks import require_instance, require_positive_int
from partialbayes.parallel._sharding import DATA, PARTICLE, PSI, num_parts
from partialbayes.types import Algorithm, Particles


def mesh(particle: int = 1, data: int = 1, psi: int = 1) -> Mesh:
    """Devices in rows and columns, for the ``mesh`` of `fit`, `refine` and `predict`.

    Particles are divided over ``particle``, the rows of a batch over ``data``, and ψ with its optimizer
    over ``psi``: each weight along its longest axis that can be divided evenly, so that a ψ too large
    for one device is kept in parts, and sent where a layer needs it. Every device has all of the
    log-weights, so that there is one resampling of the whole cloud, and one run gives what it would
    give on one device, up to the order of sums.

    Args:
        particle: Into how many parts the particles are divided.
        data: Into how many parts the rows are divided.
        psi: Into how many parts ψ is divided; one keeps all of it on every device.

    Returns:
        The first ``particle × data × psi`` devices that JAX sees, as a mesh.

    Raises:
        ValueError: There are fewer devices.

    Example:
        >>> import partialbayes as pb
        >>> pb.parallel.mesh(particle=1).axis_names
        ('particle', 'data', 'psi')
    """
    require_positive_int("particle", particle, "into how many parts the particles are divided.")
    require_positive_int("data", data, "into how many parts the rows are divided.")
    require_positive_int("psi", psi, "into how many parts ψ is divided.")
    devices, needed = jax.devices(), particle * data * psi
    if needed > len(devices):
        raise ValueError(
            f"a mesh of particle={particle} × data={data} × psi={psi} needs {needed} devices, but JAX "
            f"sees only {len(devices)}; use fewer parts, or, to try it on a CPU, set the environment "
            f"variable XLA_FLAGS=--xla_force_host_platform_device_count={needed} before JAX is started."
        )
    shaped = np.array(devices[:needed]).reshape(particle, data, psi)
    return Mesh(shaped, (PARTICLE, DATA, PSI), axis_types=(AxisType.Auto,) * 3)


def as_mesh(mesh: Any) -> Mesh | None:
    """The mesh a user passed, with axes that the compiler may divide along; None stays None."""
    if mesh is None:
        return None
    require_instance("mesh", mesh, Mesh, "for example parallel.mesh(particle=4).")
    unknown = [name for name in mesh.axis_names if name not in (PARTICLE, DATA, PSI)]
    if unknown:
        raise ValueError(
            f"mesh has an axis {unknown[0]!r}; its axes may be {PARTICLE!r}, {DATA!r} and {PSI!r} "
            "alone, as those of parallel.mesh(particle=4, data=2) are."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def require_divisible(mesh: Mesh | None, algorithm: Algorithm) -> None:
    """Complain if the particles of an algorithm cannot be divided evenly over the mesh."""
    if mesh is None:
        return
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, Particles))
    for node in nodes:
        if isinstance(node, Particles):
            require_even(mesh, node.values.shape[-2])


def require_even(mesh: Mesh | None, num_particles: int) -> None:
    """Complain if so many particles cannot be divided evenly over the mesh."""
    parts = num_parts(mesh, PARTICLE)
    if num_particles % parts:
        raise ValueError(
            f"num_particles is {num_particles}, which the mesh's axis {PARTICLE!r} of {parts} devices "
            f"does not divide; use num_particles={-(-num_particles // parts) * parts}, or another mesh."
        )
