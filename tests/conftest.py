"""Strict settings for every test: types enforced, no rank promotion, no key used twice."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

install_import_hook("partialbayes", "beartype.beartype")
