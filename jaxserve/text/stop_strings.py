"""Host: finds stop strings in text that arrives in pieces (Aho and Corasick 1975).

The first complete match wins; of two that end at the same character, the one listed first, as in vLLM. The result does
not depend on how the text is divided, so neither speculation nor multi-step decoding changes where an output ends.
"""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Self
from weakref import WeakValueDictionary


class StopStrings:
    """An automaton over stop strings, shared by all sequences with the same ones.

    A state is the longest prefix of any stop string that the text so far ends with; state 0 is the empty prefix.
    """

    _shared: ClassVar[WeakValueDictionary[tuple[tuple[str, ...], bool], Self]] = WeakValueDictionary()

    @classmethod
    def shared(cls, strings: Sequence[str], include_in_output: bool) -> Self:
        """The automaton of other live requests with the same strings, or a new one."""
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
        self.pending_len = [0] * len(self.next)  # characters at the end of the text that may become a stop string
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
            self.pending_len[state] = depth if self.next[state] else self.pending_len[fall]
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
    """Filters the text of one sequence: buffers what may be the beginning of a stop string.

    matched: the stop string that was found; no text is returned after it.
    """

    __slots__ = ("_buffered", "_state", "_stops", "matched")

    def __init__(self, stops: StopStrings):
        self._stops = stops
        self._state = 0
        self._buffered = ""
        self.matched: str | None = None

    def push(self, text: str, may_match: bool = True) -> str:
        """The text that may be shown. may_match=False: a stop string that ends in `text` is ignored."""
        stops, state = self._stops, self._state
        if self.matched is not None:
            return ""
        window = self._buffered + text
        for i, char in enumerate(text, len(self._buffered)):
            state = stops.step(state, char)
            if may_match and stops.ends[state] >= 0:
                self.matched = stops.strings[stops.ends[state]]
                self._buffered = ""
                end = i + 1 if stops.include_in_output else i + 1 - len(self.matched)
                return window[:end]
        self._state = state
        shown_len = len(window) if stops.include_in_output else len(window) - stops.pending_len[state]
        self._buffered = window[shown_len:]
        return window[:shown_len]

    def finish(self) -> str:
        """The buffered text, at the end of the sequence."""
        rest, self._buffered = self._buffered, ""
        return rest
