"""Host: `NamePatterns`: which of a model's names match the regular expressions of an adapter's configuration.

Those come from files from unknown sources, and a few characters can keep Python's `re` busy for hours. Here the
positions that a match can have reached, in all names at once, are the bits of one integer, so no expression is tried
twice at a position, and the number of operations is limited:

    names     |q_proj|k_proj|        a line break before each, and at the end
    reached    .      .              before the expression [qk]_
                 .      .            after it
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from checkpoints.errors import CheckpointError

_MAX_CHARS, _MAX_DEPTH, _MAX_OPERATIONS = 4000, 20, 500_000
_QUANTIFIER = re.compile(r"(?:([*+?])|\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\})([?+])?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_GROUP = re.compile(r"\((?:\?(?:(:)|P<\w+>|(.?)))?")
Move = Callable[[int], int]
"""From the positions before an expression to those after it."""


class NamePatterns:
    """names: without line breaks. All expressions together may take so many operations (about a second's)."""

    def __init__(self, names: Sequence[str]) -> None:
        text = "\n" + "".join(f"{name}\n" for name in names)
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        masks = {
            chr(code): int.from_bytes(np.packbits(codes == code, bitorder="little").tobytes(), "little")
            for code in np.unique(codes)
        }
        self._ends: dict[int, str] = {}
        self._starts = end = 0
        for name in names:
            self._starts |= 1 << (end + 1)
            end += len(name) + 1
            self._ends[end] = name
        self._stops = sum(1 << end for end in self._ends)
        self._masks, self._any = masks, (1 << len(text)) - 1 & ~masks["\n"]
        self._num_left = _MAX_OPERATIONS

    def matching(self, pattern: str) -> frozenset[str]:
        """The names that match as a whole, as `re.fullmatch` has it. Raises `CheckpointError` for an expression that
        is malformed, too long, takes too long, or looks around or back."""
        if len(pattern) > _MAX_CHARS:
            raise CheckpointError(f"the expression {pattern[:80]!r}… has more than {_MAX_CHARS} characters")
        reached = _Parser(pattern, self).whole()(self._starts) & self._stops
        found: set[str] = set()
        while reached:
            found.add(self._ends[reached.bit_length() - 1])
            reached ^= 1 << (reached.bit_length() - 1)
        return frozenset(found)

    def one_of(self, characters: str, *, is_negated: bool = False) -> Move:
        """One character of these, or one other than these."""
        mask = 0
        for character in set(characters) - {"\n"}:
            mask |= self._masks.get(character, 0)
        mask = self._any & ~mask if is_negated else mask

        def move(reached: int) -> int:
            self.count()
            return (reached & mask) << 1

        return move

    def characters(self, accept: Callable[[str], object]) -> str:
        """The accepted ones of those that names have."""
        return "".join(character for character in self._masks if accept(character))

    def at(self, kind: str) -> Move:
        """An anchor: "^", "$", "b" or "B"."""
        word = 0
        for character in self.characters(re.compile(r"\w").match):
            word |= self._masks[character]
        edges = word ^ word << 1
        mask = {"^": self._starts, "$": self._stops, "b": edges, "B": ~edges}[kind]
        return lambda reached: reached & mask

    def count(self) -> None:
        """Of an operation."""
        self._num_left -= 1
        if self._num_left < 0:
            raise CheckpointError("its expressions take too long to match")


class _Parser:
    """Parses one expression into moves."""

    def __init__(self, pattern: str, names: NamePatterns) -> None:
        self._pattern, self._names = pattern, names
        self._place = self._depth = 0

    def whole(self) -> Move:
        found = self._alternatives()
        if self._place < len(self._pattern):
            raise self._fault("has a ) without (")
        return found

    def _alternatives(self) -> Move:
        branches = [self._sequence()]
        while self._next() == "|":
            self._place += 1
            branches.append(self._sequence())

        def move(reached: int) -> int:
            result = 0
            for branch in branches:
                result |= branch(reached)
            return result

        return branches[0] if len(branches) == 1 else move

    def _sequence(self) -> Move:
        parts: list[Move] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._quantified(self._atom()))

        def move(reached: int) -> int:
            for part in parts:
                if not reached:
                    break
                reached = part(reached)
            return reached

        return move

    def _quantified(self, part: Move) -> Move:
        found = _QUANTIFIER.match(self._pattern, self._place)
        if found is None:
            return part
        sign, least, comma, most, suffix = found.groups()
        self._place = found.end()
        if suffix == "+" or _QUANTIFIER.match(self._pattern, self._place):
            raise self._fault("has a possessive or a double quantifier")
        if sign:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        else:
            low = int(least)
            high = (int(most) if most else None) if comma else low
        return self._repeated(part, low, high)

    def _repeated(self, part: Move, low: int, high: int | None) -> Move:
        def move(reached: int) -> int:
            for _ in range(low):
                self._names.count()
                reached = part(reached)
            new, number = reached, low
            while new and (high is None or number < high):
                self._names.count()
                new = part(new) & ~reached
                reached |= new
                number += 1
            return reached

        return move

    def _atom(self) -> Move:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == ".":
            return self._names.one_of("", is_negated=True)
        if character in "^$":
            return self._names.at(character)
        if character in "*+?":
            raise self._fault(f"has a {character} that repeats nothing")
        if character != "\\":
            return self._names.one_of(character)
        if (kind := self._next()) in ("b", "B", "A", "Z"):
            self._place += 1
            return self._names.at({"A": "^", "Z": "$"}.get(kind, kind))
        return self._names.one_of(self._escaped())

    def _group(self) -> Move:
        found = _GROUP.match(self._pattern, self._place - 1)
        if found is None or found[2] is not None:
            raise self._fault("has a group other than ( ), (?: ) and (?P< > )")
        self._place, self._depth = found.end(), self._depth + 1
        if self._depth > _MAX_DEPTH:
            raise self._fault(f"has more than {_MAX_DEPTH} groups in one another")
        inner = self._alternatives()
        if self._next() != ")":
            raise self._fault("has a ( without )")
        self._place, self._depth = self._place + 1, self._depth - 1
        return inner

    def _class(self) -> Move:
        is_negated = self._next() == "^"
        self._place += is_negated
        members, is_first = "", True
        while is_first or self._next() != "]":
            is_first, low = False, self._member()
            if self._next() == "-" and self._pattern[self._place + 1 : self._place + 2] not in ("", "]"):
                self._place += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low > high:
                    raise self._fault("has a bad range in [ ]")
                members += self._names.characters(lambda c, low=low, high=high: low <= c <= high)
            else:
                members += low
        self._place += 1
        return self._names.one_of(members, is_negated=is_negated)

    def _member(self) -> str:
        character = self._take()
        return self._escaped() if character == "\\" else character

    def _escaped(self) -> str:
        """The characters that a backslash and what follows it stand for."""
        character = self._take()
        if character in "dDsSwW":
            return self._names.characters(re.compile("\\" + character).match)
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isascii() and character.isalnum():
            raise self._fault(f"has \\{character}, which is not supported")
        return character

    def _next(self) -> str:
        return self._pattern[self._place : self._place + 1]

    def _take(self) -> str:
        """The next character, which there must be."""
        if not (character := self._next()):
            raise self._fault("ends too early")
        self._place += 1
        return character

    def _fault(self, fault: str) -> CheckpointError:
        return CheckpointError(f"the expression {self._pattern[:200]!r} {fault}")
