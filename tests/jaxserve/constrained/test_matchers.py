"""Sequences are independent, forced tokens are the tokenizer's own, and a lost process loses nothing."""

import os
import signal
from collections.abc import Iterator

import pytest

from jaxserve.constrained.matchers import Advance, Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.jaxserve.constrained.random_walks import tokens_of
from tests.jaxserve.constrained.small_vocabulary import EOS_IDS, TOKENIZER, vocabulary
from tests.support.processes.children import Children, recorded

LETTERS = StructuredOutputsParams(regex="[abc]*d")
ORDER = StructuredOutputsParams(
    json={"properties": {"orderId": {"type": "integer"}}, "required": ["orderId"], "type": "object"}
)
# Each b may be written in two ways: the number of readings, and the time for a token, grow with each.
AMBIGUOUS = StructuredOutputsParams(grammar='start: a\na: a a a a | a a | "b" | a "b" a')
SLOW = StructuredOutputsParams(
    json={"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}}
)
A, B, C, D = b"abcd"


@pytest.fixture
def processes() -> Iterator[Children]:
    with recorded() as children:
        yield children


@pytest.fixture
def matchers(processes) -> Iterator[Matchers]:
    matchers = Matchers(vocabulary(), step_limit_s=1.0, num_threads=2)
    yield matchers
    matchers.close()
    assert None not in processes.codes


def content(found: Advance) -> tuple:
    return found.forced, tokens_of(found.mask), found.may_end, found.error


def text_of(tokens) -> bytes:
    return b"".join(TOKENIZER.token_bytes[i] for i in tokens)


def test_sequences_of_one_grammar_are_independent(matchers):
    for i in range(3):
        matchers.start(i, LETTERS, EOS_IDS)
    first = matchers.advance({0: (), 1: (), 2: ()})
    assert first[0].mask is first[1].mask is first[2].mask
    matchers.advance({1: (A, B), 2: (D,)})
    found = matchers.advance({0: (), 1: (C, D), 2: ()})
    assert content(found[0]) == content(first[0])
    assert content(found[1]) == content(found[2]) == ((), set(EOS_IDS), True, None)
    matchers.drop(1)
    matchers.start(1, LETTERS, EOS_IDS[:1])
    assert content(matchers.advance({1: ()})[1]) == content(first[1])


def test_the_ends_are_those_of_the_sequence(matchers):
    """One id that is not the model's is left out; a token of the text, here d, may be an end, too."""
    for i, ends in enumerate([EOS_IDS, (EOS_IDS[1],), (D, 10_000), ()]):
        matchers.start(i, StructuredOutputsParams(regex="ab?"), ends)
    found = matchers.advance(dict.fromkeys(range(4), (A,)))
    assert [tokens_of(found[i].mask) for i in range(4)] == [{B, *EOS_IDS}, {B, EOS_IDS[1]}, {B, D}, {B}]
    matchers.start(4, StructuredOutputsParams(regex="a|ad"), (D,))
    matchers.start(5, StructuredOutputsParams(regex="[ac]d|e"), (D,))
    assert content(matchers.advance({4: ()})[4]) == ((A,), {D}, True, None)
    assert tokens_of(matchers.advance({5: ()})[5].mask) == {A, C, ord("e")}
    assert content(matchers.advance({5: (A,)})[5]) == ((), set(), False, "no text of this form exists from here on")


def test_forced_tokens_are_those_that_the_tokenizer_makes(matchers):
    """`orderId` is one token. Where `order` may become `orderId`, it is not forced."""
    matchers.start(0, ORDER, EOS_IDS)
    matchers.start(1, StructuredOutputsParams(regex="<s>order(?:Id|s)"), EOS_IDS)
    found = matchers.advance({0: (), 1: ()})
    assert list(found[0].forced) == TOKENIZER.encode('{"orderId":')
    assert text_of(found[1].forced) == b"<s>"  # text, not the special token
    beginnings = ("o", "or", "ord", "orde", "order", "orderI", "orderId")
    assert tokens_of(found[1].mask) == {TOKENIZER.encode(text)[0] for text in beginnings}


def test_masks_ask_for_forced_tokens_one_by_one(matchers):
    """What `advance` forces is what drawing along the masks gives."""
    for i in range(2):
        matchers.start(i, ORDER, EOS_IDS)
    found = matchers.advance({0: ()})[0]
    tokens: list[int] = []
    while len(legal := tokens_of(matchers.along({1: tokens})[1][1][-1])) == 1:
        tokens += legal
    assert tuple(tokens) == found.forced
    assert legal == tokens_of(found.mask)
    assert content(matchers.advance({1: tokens})[1])[1:] == content(found)[1:]


def test_nothing_is_forced_where_it_is_not_wanted(matchers):
    """The mask then has the first forced token alone."""
    for i in range(2):
        matchers.start(i, ORDER, EOS_IDS, forces=i == 0)
    first, second, *_ = matchers.along({0: TOKENIZER.encode('{"orderId":')})[0][1]
    assert content(matchers.advance({0: None})[0]) == ((), tokens_of(first), False, None)
    drawn = tuple(tokens_of(first))
    assert content(matchers.advance({1: drawn})[1]) == ((), tokens_of(second), False, None)
    assert len(matchers.advance({0: drawn})[0].forced) > 1
    assert len(drawn) == len(tokens_of(second)) == 1


def test_a_process_that_is_killed_loses_nothing(matchers, processes):
    for i in range(3):
        matchers.start(i, LETTERS if i else ORDER, EOS_IDS)
    first = matchers.advance({0: (), 1: (A, B), 2: ()})
    processes[0].kill()
    processes[0].wait()
    found = matchers.advance({0: (), 1: (D,)})
    assert content(found[0]) == ((), *content(first[0])[1:])
    assert content(found[1]) == ((), set(EOS_IDS), True, None)
    assert content(matchers.advance({2: ()})[2]) == content(first[2])
    assert len(processes) == 2
    processes[1].kill()
    processes[1].wait()
    matchers.drop(0)
    matchers.start(3, LETTERS, EOS_IDS)
    assert content(matchers.advance({3: ()})[3]) == content(first[2])
    assert len(processes) == 3


def test_a_process_that_hangs_is_killed(matchers, processes):
    matchers.start(0, LETTERS, EOS_IDS)
    first = matchers.advance({0: ()})[0]
    os.kill(processes[0].pid, signal.SIGSTOP)
    assert content(matchers.advance({0: (A,)})[0]) == content(first)
    assert processes.codes == [-signal.SIGKILL, None]


def test_a_sequence_at_which_every_process_fails_ends_alone(processes):
    """The text is far too long for the memory of a process that may allocate little."""
    matchers = Matchers(vocabulary(), memory_limit=16 << 20)
    matchers.start(0, LETTERS, EOS_IDS)
    first = matchers.advance({0: ()})[0]
    matchers.start(1, StructuredOutputsParams(regex="a" * 200_000), EOS_IDS)
    matchers.start(2, LETTERS, EOS_IDS)
    found = matchers.advance({0: (A,), 1: (), 2: ()})
    assert content(found[1]) == ((), set(), False, "the grammar needs too much memory: more than 16 MiB")
    assert content(found[0]) == content(found[2]) == content(first)
    assert content(matchers.advance({1: ()})[1]) == content(found[1])
    assert matchers.along({1: [A]})[1][0] == 0
    matchers.close()


def test_a_grammar_that_compiles_for_too_long_ends_alone(processes):
    matchers = Matchers(vocabulary(), compile_limit_s=0.5)
    matchers.start(0, LETTERS, EOS_IDS)
    first = matchers.advance({0: ()})[0]
    matchers.start(1, SLOW, EOS_IDS)
    while not matchers.is_ready(1):  # other sequences go on meanwhile
        assert content(matchers.advance({0: (A,)})[0]) == content(first)
    assert matchers.advance({1: ()})[1].error == "the grammar took too long to compile: more than 0.5 s"
    assert content(matchers.advance({0: (A,)})[0]) == content(first)
    matchers.drop(1)
    matchers.start(1, SLOW, EOS_IDS)
    found = matchers.advance({0: (), 1: ()})
    assert (found[0].error, found[1].error) == (None, "the grammar took too long to compile: more than 0.5 s")
    matchers.close()


def test_a_process_that_hangs_while_it_compiles_is_not_the_fault_of_a_grammar(processes):
    matchers = Matchers(vocabulary(), compile_limit_s=1.0)
    matchers.start(0, LETTERS, EOS_IDS)
    first = matchers.advance({0: ()})[0]
    os.kill(processes[0].pid, signal.SIGSTOP)
    matchers.start(1, LETTERS, EOS_IDS)
    while not matchers.is_ready(1):
        pass
    found = matchers.advance({0: (), 1: ()})
    assert content(found[0]) == content(found[1]) == content(first)
    assert len(processes) == 2
    os.kill(processes[1].pid, signal.SIGSTOP)
    matchers.start(2, LETTERS, EOS_IDS)
    assert content(matchers.advance({2: ()})[2]) == content(first)
    matchers.close()


def test_a_grammar_that_takes_longer_with_each_token_ends(matchers):
    matchers.start(0, AMBIGUOUS, EOS_IDS)
    matchers.start(1, LETTERS, EOS_IDS)
    first = matchers.advance({0: (), 1: ()})
    for _ in range(100):
        found = matchers.advance({0: (B,) * 4})[0]
        if found.error is not None:
            break
    assert found.error == "the grammar is too ambiguous: its text takes longer and longer to follow"
    assert content(matchers.advance({1: (A,)})[1]) == content(first[1])


def test_what_one_sequence_exhausts_others_get_anew(matchers):
    """Matchers of one grammar share its lexer, whose expressions are limited, and each of these texts needs many."""
    many = StructuredOutputsParams(regex="(a{1,1000}){1,1000}")
    for i in range(2):
        matchers.start(i, many, EOS_IDS)
    first = matchers.advance({0: (), 1: ()})
    for _ in range(300):
        found = matchers.advance({0: (A,) * 20})[0]
        if found.error is not None:
            break
    assert "too many expressions" in found.error
    assert content(matchers.advance({1: ()})[1])[1:] == content(first[1])[1:]
    assert matchers.advance({1: (A,)})[1].error is None
    matchers.start(2, many, EOS_IDS)
    assert matchers.advance({2: (A,)})[2].error is None


def test_a_grammar_that_is_refused_ends_its_sequence(matchers):
    matchers.start(0, StructuredOutputsParams(regex="a(?=b)"), EOS_IDS)
    found = matchers.advance({0: ()})[0]
    assert "look-around" in str(found.error)
    assert not found.mask.any()


def test_a_token_that_is_not_allowed_ends_its_sequence(matchers):
    matchers.start(0, LETTERS, EOS_IDS)
    matchers.start(1, LETTERS, EOS_IDS)
    found = matchers.advance({0: (A, ord("z")), 1: (A,)})
    assert found[0].error is not None
    assert found[1].error is None


def test_many_sequences_get_more_rows(matchers):
    for i in range(50):
        matchers.start(i, StructuredOutputsParams(regex=f"a{{{i}}}b"), EOS_IDS)
    found = matchers.advance({i: (A,) * i for i in range(50)})
    assert all(content(found[i])[1:] == ({B}, False, None) or found[i].forced == (B,) for i in range(50))


def test_drafts_are_checked_without_moving(matchers):
    matchers.start(0, StructuredOutputsParams(regex="[ab]+c"), EOS_IDS)
    first = matchers.advance({0: (A,)})[0]
    for drafts, num_legal in [
        ((), 0),
        ((A, B, C), 3),
        ((A, D, A), 1),
        ((C, EOS_IDS[0]), 1),
        ((A, -1), 1),
        ((10_000,), 0),
        ((A,) * 40, 40),
    ]:
        count, masks = matchers.along({0: drafts})[0]
        assert count == num_legal
        assert len(masks) == count + 1
        assert masks[0] is first.mask
        for draft, mask in zip(drafts[:count], masks, strict=False):
            assert draft in tokens_of(mask)
        if count < len(drafts):
            assert drafts[count] not in tokens_of(masks[count]) - set(EOS_IDS)
    assert tokens_of(matchers.along({0: (A, C)})[0][1][2]) == set(EOS_IDS)
    assert content(matchers.advance({0: ()})[0]) == content(first)


def test_drafts_of_many_sequences_are_checked_together(matchers):
    """Each as it is alone, whatever the others draft and however far theirs are legal."""
    forms = ("[ab]+c", "a{3}b", "abc|abd", "a|")
    for i, regex in enumerate(forms):
        matchers.start(i, StructuredOutputsParams(regex=regex), EOS_IDS)
        matchers.advance({i: ()})
    drafts = {0: (A, A, C, A), 1: (), 2: (B,), 3: (A, A)}
    together = matchers.along(drafts)
    assert [count for count, _ in together.values()] == [3, 0, 0, 1]
    for i, tokens in drafts.items():
        count, masks = matchers.along({i: tokens})[i]
        assert (count, [id(mask) for mask in masks]) == (together[i][0], [id(mask) for mask in together[i][1]])


def test_drafts_are_checked_by_another_process_where_one_was_lost(matchers, processes):
    matchers.start(0, LETTERS, EOS_IDS)
    matchers.advance({0: (A,)})
    processes[0].kill()
    processes[0].wait()
    assert matchers.along({0: (A, D)})[0][0] == 2


def test_the_process_ends_with_its_parent(processes):
    matchers = Matchers(vocabulary())
    matchers.start(0, LETTERS, EOS_IDS)
    matchers.advance({0: ()})
    matchers._process._process._channel.close()
    assert processes[0].wait(10) == 0


@pytest.mark.parametrize(
    ("name", "value"), [("PROGRAM", "raise SystemExit('no room')"), ("command", lambda *_: ["/no room"])]
)
def test_without_a_process_sequences_end(monkeypatch, name, value):
    matchers = Matchers(vocabulary())
    monkeypatch.setattr(f"jaxserve.constrained.killable_process.{name}", value)
    for i in range(2):
        matchers.start(i, LETTERS, EOS_IDS)
        assert "no room" in str(matchers.advance({i: ()})[i].error)
    matchers.drop(0)
    matchers.drop(1)
    monkeypatch.undo()
    matchers.start(2, LETTERS, EOS_IDS)
    assert matchers.advance({2: ()})[2].error is None
    matchers.close()


def test_a_process_may_start_before_the_first_sequence(matchers, processes):
    matchers.prepare()
    matchers.prepare()
    matchers.start(0, LETTERS, EOS_IDS)
    assert matchers.advance({0: (D,)})[0].may_end
    assert len(processes) == 1
