"""A sample's text does not depend on when it is read, and stop strings are found as they complete."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.token_deltas import NO_TOKEN
from jaxserve.engine.outputs.request_state import SequenceOutput, StepUpdate
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText
from jaxserve.text.stop_strings import StopStrings
from jaxserve.text.token_bytes import TokenBytes

RAW = [b"a", b"b", b"\xe2", b"\x82", b"\xac", "é".encode(), b" the"]
TOKENIZER: Any = SimpleNamespace(decoding=TokenBytes(RAW, "replace", False), special_ids=frozenset())
JOB: Any = None
TOKENS = st.lists(st.integers(0, len(RAW) - 1), min_size=1, max_size=12)


class Growing:
    """A sequence that grows as by commits."""

    def __init__(self):
        self.ids, self.prompt_len, self.finish_reason = [9, 9], 2, None
        self.request = SimpleNamespace(stop_ids=())

    @property
    def tokens(self) -> np.ndarray:
        return np.array(self.ids)

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None


def sample(**params: Any) -> tuple[SequenceOutput, Any]:
    wanted, sequence = SamplingParams(**params), cast(Any, Growing())
    stops = StopStrings(wanted.stop) if wanted.stop else None
    return SequenceOutput(JOB, sequence, OutputText(Detokenizer(TOKENIZER).stream(), wanted, stops)), sequence


ENDS = st.sampled_from(["length", "stop", "error", "abort", "the end of its form"])


@given(TOKENS, st.lists(st.booleans(), min_size=12, max_size=12), ENDS)
def test_reading_in_between_changes_nothing(tokens, is_read, end):
    """A token that ends a text is not shown, but the last one of a form is."""
    (read, sequence), (unread, other) = sample(), sample()
    reason = "stop" if end == "the end of its form" else end
    for each in (sequence, other) if end == "stop" else ():
        each.request.stop_ids = (tokens[-1],)
    for i, token in enumerate(tokens):
        for each in (sequence, other):
            each.ids.append(token)
            each.finish_reason = reason if i == len(tokens) - 1 else None
        if is_read[i]:
            assert read.text == read.text
    shown = tokens[:-1] if end == "stop" else tokens
    whole = b"".join(RAW[token] for token in shown)
    assert read.text == unread.text
    if reason == "abort":  # the bytes of an incomplete character are not shown
        assert whole.decode("utf-8", "ignore") in (unread.text, unread.text.replace("\ufffd", ""))
    else:
        assert unread.text == whole.decode("utf-8", "replace")


def test_stop_strings_are_searched_in_every_token():
    stopped, _ = sample(stop="ba")
    assert [stopped.push(token, None) for token in (0, 1, 0)] == [None, None, ("ba", 3)]
    assert stopped.text == "a"


def test_a_possible_stop_string_is_buffered_until_the_end():
    cut, _ = sample(stop="ba")
    cut.push(0, None)
    cut.push(1, None)
    assert cut.text == "a"
    assert cut.push(-1, "error") is None
    assert cut.text == "ab"


def test_an_update_maps_tokens_to_requests():
    first, second = sample()[0], sample()[0]
    first.state, second.state = cast(Any, "first"), cast(Any, "second")
    sequences: list[Any] = [SimpleNamespace(sequence_id=i) for i in (7, 8, 9, 7)]
    update = StepUpdate(sequences, {7: first})
    update.note(1, second, 5, True)  # 8 has ended and is no longer among the samples; 9 is of no request here
    assert list(update) == [("first", False), ("second", True), ("first", False)]
    assert (update.samples(), update.ended, update.tokenless) == ([first, second, first], [second], [])
    update.note(3, None, NO_TOKEN, False)
    assert list(update) == [("first", False), ("second", True)]
    assert (update.samples(), update.ended, update.tokenless) == ([first, second], [second], [])
    update.note(0, first, NO_TOKEN, True)
    assert (update.ended, update.tokenless) == ([second, first], [first])
