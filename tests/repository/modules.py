"""Every module of the three packages as data, read from the files without importing any."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jaxserve", "checkpoints", "pallas_kernels")
HALVES = ("Host", "Device", "Wiring")


@dataclass(frozen=True)
class Module:
    name: str
    """Dotted name."""
    path: Path
    half: str | None
    """The word of HALVES with which its docstring begins, or None."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def half_of(source: str) -> str | None:
    match = re.match(rf"({'|'.join(HALVES)}): \S", ast.get_docstring(ast.parse(source)) or "")
    return match and match[1]


def dotted_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> tuple[Module, ...]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return tuple(Module(dotted_name(path), path, half_of(path.read_text())) for path in paths)


def names_of(half: str) -> list[str]:
    """Dotted names of the modules whose docstring begins with this word."""
    return [module.name for module in modules() if module.half == half]
