"""What is private in JAX and used all the same is still there."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from partialbayes._utils import compat

PACKAGE = Path(__file__).parents[2] / "src" / "partialbayes"


def test_operations_are_evaluated_one_by_one():
    traced = jax.make_jaxpr(lambda x: jax.jit(jnp.sin)(x) + jnp.cumsum(x))(jnp.ones(3))
    call, *rest = traced.jaxpr.eqns
    assert compat.is_jit(call)
    assert not compat.is_jit(rest[-1])
    (result,) = compat.evaluate(call, [jnp.ones(3)])
    np.testing.assert_allclose(result, np.sin(np.ones(3)), rtol=1e-6)


def test_a_cluster_is_what_was_given_where_there_is_none():
    assert compat.detect_cluster("127.0.0.1:1", 2, 1, 1)[:3] == ("127.0.0.1:1", 2, 1)
    assert compat.distributed_store() is None  # this process has joined no others


def test_no_other_file_asks_jax_for_what_is_private():
    for path in PACKAGE.rglob("*.py"):
        imported = {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        }
        private = {name for name in imported if name.startswith("jax._src")}
        assert not private or path.name == "compat.py", path
