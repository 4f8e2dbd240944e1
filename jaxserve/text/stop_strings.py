"""Host: stop strings in text that comes in pieces (Aho and Corasick 1975).

The match is the one that is complete first; of two that end at the same character, the one listed first, as in vLLM.
That does not depend on how the text is cut, so neither speculation nor chunks change where an output ends.
"""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Self
from weakref import WeakValueDictionary


class StopStrings:
    """An automaton over strings, which all sequences that ask for the same ones can share.

    State 0 is the empty match; a state is a prefix of some string, the longest that the text so far ends with.
    """

    _shared: ClassVar[WeakValueDictionary[tuple[tuple[str, ...], bool], Self]] = WeakValueDictionary()

    @classmethod
    def shared(cls, strings: Sequence[str], include_in_output: bool) -> Self:
        """The one that others with these strings have, for the requests of a batch have mostly the same."""
        key = tuple(strings), include_in_output
        found = cls._shared.get(key)
        if found is None:
            found = cls._shared[key] = cls(strings, include_in_output)
        return found

    def __init__(self, strings: Sequence[str], include_in_output: bool = False):
        self.strings = tuple(strings)
        self.include_in_output = include_in_output
        self.next: list[dict[str, int]] = [{}]
        self.ends = [-1]  # index of the first-listed string that ends in this state
        for index, string in enumerate(self.strings):
            self._insert(index, string)
        self.fall = [0] * len(self.next)  # the state of the longest proper suffix
        self.open = [0] * len(self.next)  # characters at the end of the text that may yet become a stop string
        self._link()

    def _insert(self, index: int, string: str) -> None:
        state = 0
        for char in string:
            if char not in self.next[state]:
                self.next[state][char] = len(self.next)
                self.next.append({})
                self.ends.append(-1)
            state = self.next[state][char]
        if self.ends[state] < 0:
            self.ends[state] = index

    def _link(self) -> None:
        queue = deque((child, 0, 1) for child in self.next[0].values())
        while queue:
            state, fall, depth = queue.popleft()
            self.fall[state] = fall
            self.open[state] = depth if self.next[state] else self.open[fall]
            self.ends[state] = min((i for i in (self.ends[state], self.ends[fall]) if i >= 0), default=-1)
            for char, child in self.next[state].items():
                queue.append((child, self.step(fall, char), depth + 1))

    def step(self, state: int, char: str) -> int:
        while state and char not in self.next[state]:
            state = self.fall[state]
        return self.next[state].get(char, 0)

    def matcher(self) -> "StopMatcher":
        return StopMatcher(self)


class StopMatcher:
    """The text of one sequence on its way out; holds back what may be the beginning of a stop string.

    matched: the stop string that was met; after it nothing more comes out.
    """

    __slots__ = ("_held", "_state", "_stops", "matched")

    def __init__(self, stops: StopStrings):
        self._stops = stops
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, may_match: bool = True) -> str:
        """The text that may be shown. Without may_match a string that ends in this text does not stop it."""
        stops, state = self._stops, self._state
        if self.matched is not None:
            return ""
        window = self._held + text
        for i, char in enumerate(text, len(self._held)):
            state = stops.step(state, char)
            if may_match and stops.ends[state] >= 0:
                self.matched = stops.strings[stops.ends[state]]
                self._held = ""
                end = i + 1 if stops.include_in_output else i + 1 - len(self.matched)
                return window[:end]
        self._state = state
        shown = len(window) if stops.include_in_output else len(window) - stops.open[state]
        self._held = window[shown:]
        return window[:shown]

    def finish(self) -> str:
        """What was held back, now that no more text will come."""
        held, self._held = self._held, ""
        return held
