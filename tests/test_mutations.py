"""The mutations still apply: they change one place each, to something that can be read."""

import ast

import pytest

from tests.mutations import MUTATIONS, PACKAGE, ROOT


def test_there_are_many_and_each_has_its_own_name():
    assert len(MUTATIONS) >= 75
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_it_applies(mutation):
    text = (ROOT / PACKAGE / mutation.file).read_text()
    assert text.count(mutation.before) == 1
    assert ast.dump(ast.parse(mutation.applied(text))) != ast.dump(ast.parse(text))
    files = [test.split("::")[0] for test in mutation.tests if not test.startswith("-")]
    assert files
    assert all((ROOT / "tests" / file).is_file() for file in files)
