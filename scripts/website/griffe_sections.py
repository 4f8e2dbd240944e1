"""Extension of griffe, the docstring reader of the API pages: enumerations in prose become lists.

- Lines after ">>> " become a code block.
- A paragraph "n: samples of one prompt. seed: …", whose names are parameters or fields, becomes a list.
- A field `x: int = option(1, "help")` of a dataclass has the default 1, and its help stands in the list of the class.
"""

import ast
import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^(?:>>>|\.\.\.) ?.*\n?)+", re.MULTILINE)
ENTRY = re.compile(r"(?:(?<=\. )|(?<=\.\n)|^)([a-z_]\w*(?:, \w+)*): ")
ERRORS = re.compile(r"(?<=\.)\s(?=Raises? )")


def as_list(paragraph: str, names: set[str]) -> str:
    """The paragraph as a list of its entries, or unchanged if it does not begin with one."""
    starts = [m for m in ENTRY.finditer(paragraph) if any(name in names for name in m[1].split(", "))]
    if not starts or starts[0].start() != 0:
        return paragraph
    listed, *errors = ERRORS.split(paragraph, maxsplit=1)
    starts = [m for m in starts if m.start() < len(listed)]
    ends = [m.start() for m in starts[1:]] + [len(listed)]
    items = [entry(m[1].split(", "), listed[m.end() : end]) for m, end in zip(starts, ends, strict=True)]
    return "\n\n".join(["\n".join(items), *errors])


def entry(names: list[str], text: str) -> str:
    return f"- {', '.join(f'`{name}`' for name in names)}: {' '.join(text.split())}"


def as_code(text: str) -> str:
    """Doctest lines as a code block."""
    return EXAMPLE.sub(lambda m: "```python\n" + re.sub(r"^(?:>>>|\.\.\.) ?", "", m[0], flags=re.M) + "```\n", text)


def improved(text: str, names: set[str]) -> str:
    """The docstring with lists and code blocks; indented paragraphs are unchanged."""
    paragraphs = text.split("\n\n")
    return as_code("\n\n".join(p if p.startswith(" ") else as_list(p, names) for p in paragraphs))


def help_of(attr: griffe.Attribute) -> str | None:
    """The help text of an `option`, with the names in braces replaced by their values."""
    value = attr.value
    if not isinstance(value, griffe.ExprCall) or str(value.function) != "option":
        return None
    text = next(str(argument) for argument in value.arguments[1:])

    def constant(found: re.Match[str]) -> str:
        return str(getattr(attr.module[found[1]], "value", found[1])).removesuffix(".0")

    return ast.literal_eval(re.sub(r"\{(\w+)[^}]*\}", constant, text.removeprefix("f")))


class Sections(griffe.Extension):
    """The extension that .mkdocs.yml loads."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self._improve(pkg)

    def _improve(self, owner: griffe.Object) -> None:
        for member in owner.members.values():
            if member.is_alias:
                continue
            if isinstance(member, griffe.Class):
                self._improve_class(member)
            elif isinstance(member, griffe.Function) and member.docstring is not None:
                names = {parameter.name for parameter in member.parameters}
                member.docstring.value = improved(member.docstring.value, names)
            if isinstance(member, griffe.Module | griffe.Class):
                self._improve(member)

    def _improve_class(self, cls: griffe.Class) -> None:
        if cls.docstring is None:
            return
        text = improved(cls.docstring.value, set(cls.members))
        options = [(attr, help) for attr in cls.attributes.values() if (help := help_of(attr))]
        for attr, _ in options:
            attr.value = attr.value.arguments[0]
        items = [entry([attr.name], help) for attr, help in options]
        cls.docstring.value = "\n\n".join([text, "\n".join(items)]) if items else text
