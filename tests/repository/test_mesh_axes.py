"""Only `core.hardware.mesh` names mesh axes; every other module names logical axes."""

import ast

from jaxserve.core.hardware import mesh
from tests.repository.modules import modules


def named_axes(source: str) -> set[str]:
    """Mesh axes whose names are strings of a program, other than whole docstrings and messages."""
    strings = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return strings & set(mesh.AXES) - {"data"}  # also a word of file formats


def sized_axes(source: str) -> list[str]:
    """Expressions `….shape["…"]`."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "shape"
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ]


def test_no_other_module_names_a_mesh_axis():
    others = [module for module in modules() if module.name.startswith("jaxserve.") and module.name != mesh.__name__]
    found = {
        module.name: (named_axes(source), sized_axes(source))
        for module in others
        if (source := module.path.read_text())
    }
    assert {name: axes for name, axes in found.items() if any(axes)} == {}


def test_the_control_names_are_found():
    assert named_axes('P("tensor", None)') == {"tensor"}
    assert sized_axes('mesh.shape["data"]') == ["mesh.shape['data']"]
