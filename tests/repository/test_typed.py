"""Type checkers read the annotations of an installed package only if it says that it has them (PEP 561)."""

from hatchling.builders.wheel import WheelBuilder

from tests.repository.modules import PACKAGES, ROOT


def test_every_package_of_a_wheel_is_marked_as_typed():
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed
