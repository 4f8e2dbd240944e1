"""Type checkers read the annotations of an installed package only if it says that it has them (PEP 561)."""

import pytest

from tests.repository.modules import PACKAGES, ROOT


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_marked_as_typed(package):
    assert (ROOT / package / "py.typed").is_file()
