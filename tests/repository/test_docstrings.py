"""The first word of a module's docstring says whether it is Host, Device or Wiring code."""

from tests.repository.modules import HALVES, ROOT, half_of, modules


def test_every_module_says_which_half_it_belongs_to():
    silent = [module.name for module in modules() if not module.is_package and module.half is None]
    assert not silent, f"these docstrings do not begin with one of {HALVES} and a colon: {silent}"


def test_every_folder_is_a_package():
    """A folder without __init__.py can be imported from a checkout, and would be missing from a wheel."""
    folders = {folder for module in modules() for folder in module.path.parents if ROOT in folder.parents}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_package_files_are_empty():
    """Otherwise importing a Host module could run imports of another one. `jaxserve` itself is lazy, not empty."""
    full = [m.name for m in modules() if m.is_package and m.name != "jaxserve" and m.path.read_text().strip()]
    assert not full, f"these __init__.py files are not empty: {full}"


def test_a_module_without_the_word_is_noticed():
    assert half_of('"""Host: numbers."""') == "Host"
    assert half_of('"""Numbers of the Host: side."""') is None
    assert half_of("x = 1") is None
