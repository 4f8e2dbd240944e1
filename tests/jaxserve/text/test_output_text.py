"""The text of a running sequence: stop strings across tokens, and the number of tokens up to them."""

import pytest

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText
from jaxserve.text.stop_strings import StopStrings
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level


@pytest.fixture(scope="module")
def detokenizer():
    return Detokenizer(tokenizer_from_gguf(byte_level()))


def output(detokenizer, **options):
    params = SamplingParams(**options)
    stops = StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None
    return OutputText(detokenizer.stream(skip_special_tokens=params.skip_special_tokens), params, stops)


def test_without_stop_strings_all_text_comes_at_once(detokenizer):
    text = output(detokenizer)
    assert text.push(b"abc") + text.push(b"d\xe2") + text.finish() == "abcd\ufffd"
    assert (text.num_tokens, text.stop_string) == (5, None)


@pytest.mark.parametrize(
    "chunks", [[b"one, two, three"], [b"one, t", b"wo", b", three"], [bytes([b]) for b in b"one, two,"]]
)
def test_the_tokens_kept_end_with_the_one_that_completed_the_stop_string(detokenizer, chunks):
    text = output(detokenizer, stop=["two"])
    assert "".join(text.push(chunk) for chunk in chunks if text.stop_string is None) + text.finish() == "one, "
    assert (text.num_tokens, text.stop_string) == (len("one, two"), "two")


def test_a_stop_string_inside_a_token_cuts_its_text_but_keeps_the_token(detokenizer):
    hello = 259  # "hello" in one token
    assert detokenizer.token_text(hello) == "hello"
    cut = output(detokenizer, stop=["el"])
    assert (cut.push([65, hello, 66]), cut.num_tokens) == ("Ah", 2)
    shown = output(detokenizer, stop=["el"], include_stop_str_in_output=True)
    assert (shown.push([65, hello, 66]), shown.num_tokens) == ("Ahel", 2)


def test_a_stop_string_counts_only_after_min_tokens(detokenizer):
    early = output(detokenizer, stop=["b"], min_tokens=2)
    assert early.push(b"ab") == "ab"
    assert (early.push(b"cbx"), early.num_tokens, early.stop_string) == ("c", 4, "b")
    begun = output(detokenizer, stop=["bc"], min_tokens=2)
    assert begun.push(b"abcd") + begun.finish() == "a"


def test_what_was_held_back_comes_out_when_the_sequence_ends(detokenizer):
    text = output(detokenizer, stop=["xyz"])
    assert (text.push(b"axy"), text.finish()) == ("a", "xy")
    torn = output(detokenizer, stop=["\ufffd"])
    assert torn.push(b"a\xe2") + torn.finish() == "a\ufffd"
    assert torn.stop_string is None


@pytest.mark.parametrize("options", [{}, {"stop": ["zz"]}])
def test_the_token_that_ended_the_sequence_is_shown_only_on_request(detokenizer, options):
    hidden = output(detokenizer, **options)
    assert hidden.push(b"ab!", is_ended_by_token=True) + hidden.finish() == "ab"
    assert hidden.num_tokens == 3
    shown = output(detokenizer, include_stop_str_in_output=True, **options)
    assert shown.push(b"ab!", is_ended_by_token=True) + shown.finish() == "ab!"


def test_special_tokens_are_shown_only_on_request(detokenizer):
    end = 261
    assert detokenizer.token_text(end) == "<|end|>"
    assert output(detokenizer).push([65, end, 66]) == "AB"
    assert output(detokenizer, skip_special_tokens=False).push([65, end, 66]) == "A<|end|>B"
