"""A stop string ends the text at the same place for any division of the text."""

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from jaxserve.text.stop_strings import StopStrings

STRINGS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4)
TEXTS = st.lists(st.text("ab", max_size=4), max_size=8)


def run(stops, pieces):
    matcher = stops.matcher()
    text = "".join(matcher.push(piece) for piece in pieces)
    return text + matcher.finish(), matcher.matched


def plainly(strings, text, include):
    """The first end of any stop string, by brute force over all prefixes."""
    for end in range(1, len(text) + 1):
        for string in strings:
            if text[:end].endswith(string):
                return text[: end if include else end - len(string)], string
    return text, None


@given(STRINGS, TEXTS, st.booleans())
def test_the_text_ends_where_a_plain_search_would_end_it(strings, pieces, include):
    assert run(StopStrings(strings, include), pieces) == plainly(strings, "".join(pieces), include)


@given(STRINGS, TEXTS, st.booleans())
def test_nothing_that_was_shown_is_taken_back_and_nothing_is_held_without_need(strings, pieces, include):
    stops = StopStrings(strings, include)
    matcher, shown, text = stops.matcher(), "", ""
    for piece in pieces:
        shown += matcher.push(piece)
        text += piece
        if matcher.matched is not None:
            break
        held = text[len(shown) :]
        assert text.startswith(shown)
        assert held == "" if include else any(string.startswith(held) for string in strings)
    assert plainly(strings, text, include)[0].startswith(shown)


@given(STRINGS, TEXTS, st.integers(0, 8), st.booleans())
def test_a_string_that_ends_before_matching_is_allowed_does_not_stop(strings, pieces, first, include):
    matcher = StopStrings(strings, include).matcher()
    text = "".join(matcher.push(piece, may_match=i >= first) for i, piece in enumerate(pieces)) + matcher.finish()
    whole, before = "".join(pieces), len("".join(pieces[:first]))
    ends = [end for end in range(before + 1, len(whole) + 1) if whole[:end].endswith(tuple(strings))]
    if not ends:
        assert (text, matcher.matched) == (whole, None)
    else:
        stop = next(string for string in strings if whole[: ends[0]].endswith(string))
        assert (text, matcher.matched) == (whole[: ends[0] if include else ends[0] - len(stop)], stop)


def test_of_two_strings_that_end_together_the_first_listed_counts():
    assert run(StopStrings(["b", "ab"]), ["xab"]) == ("xa", "b")
    assert run(StopStrings(["ab", "b"]), ["xab"]) == ("x", "ab")


def test_text_goes_out_again_when_it_was_no_stop_string_after_all():
    matcher = StopStrings(["</s>"]).matcher()
    assert [matcher.push(piece) for piece in ("a<", "/", "b", "</", "s", ">", "more")] == [
        "a",
        "",
        "</b",
        "",
        "",
        "",
        "",
    ]
    assert matcher.matched == "</s>"
    assert matcher.finish() == ""


def test_characters_beyond_ascii_are_matched_whole():
    assert run(StopStrings(["\u3002"]), ["\u4f60\u597d", "\u3002\u518d"]) == ("\u4f60\u597d", "\u3002")


def test_many_long_strings_are_matched_in_one_pass():
    strings = ["a" * n + "b" for n in range(1000, 1064)]
    assert run(StopStrings(strings), ["a" * 20000, "c"]) == ("a" * 20000 + "c", None)
    text, matched = run(StopStrings(strings), ["c", "a" * 1000, "b"])
    assert (text, matched) == ("c", strings[0])


def test_those_who_ask_for_the_same_share_one_automaton_as_long_as_any_of_them_lives():
    strings = ("shared", "by all")
    one, other = StopStrings.shared(strings, False), StopStrings.shared(list(strings), False)
    assert one is other
    assert StopStrings.shared(strings, True) is not one
    gone = weakref.ref(one)
    del one, other
    gc.collect()
    assert gone() is None
