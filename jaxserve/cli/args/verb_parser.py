"""Host: `VerbParser`: an argument parser whose errors are one line with a hint instead of the whole usage."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from jaxserve.core.did_you_mean import similar

MIN_LETTERS = 3  # fewer are close to any name


class VerbParser(argparse.ArgumentParser):
    """The parser of one verb. A flag must be spelled out: an abbreviation would change its meaning with a new flag."""

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]: the base has four overloads
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuses an unknown flag before a missing argument, which is often its consequence."""
        args = sys.argv[1:] if args is None else list(args)
        if self._subparsers is None:  # else the flags are those of a parser below
            for word in args[: args.index("--")] if "--" in args else args:
                name = word.partition("=")[0]
                if name.startswith("--") and " " not in name and name not in self._option_string_actions:
                    self.error(f"unknown option {name}{self._hint(name)}")
        return super().parse_known_args(args, namespace)

    def _hint(self, name: str) -> str:
        if any(not a.option_strings and a.dest == name[2:] for a in self._actions):
            return f": give it without the name, as in `{self.prog} {name[2:].upper()}`"
        return hint(name, self._option_string_actions)

    def format_help(self) -> str:
        """The usage names what is required: all options would fill a page, and are described below it."""
        required = [action for action in self._actions if action.required]
        words = (" ".join((*a.option_strings[:1], str(a.metavar or a.dest.upper()))) for a in required)
        self.usage = " ".join((self.prog, *words, "[OPTIONS]"))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` lists all options)\n")


def hint(name: str, known: Iterable[str]) -> str:
    """A question for the name that was probably meant, or nothing."""
    known = list(known)
    if len(name.strip("-")) < MIN_LETTERS:
        return ""
    close = next((each for each in known if each.startswith(name)), None) or similar(name, known)
    return f": did you mean {close}?" if close else ""
