"""Constrained texts: in their form, the same in every way of running them, refused and ended by name.

Draws of the fake model are random, so a text that is in its form is so by its masks alone. `scripts/prove grammars`
has real models.
"""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from jaxserve import BeamSearchParams, RequestError, SamplingParams
from jaxserve.runner.fake.fake_model import FakeModel
from tests.support.drafting import AlwaysDraft, counted
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.fakes.real_grammars import engines_with_grammars, is_without_grammars
from tests.support.tiny_engines import driven

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
        "is_new": {"type": "boolean"},
    },
    "required": ["count", "is_new"],
    "additionalProperties": False,
}
GRAMMAR = 'start: "(" item ("," item)~0..2 ")"\nitem: /[a-c]{1,2}/ | start'
FORMS = [
    {"json": SCHEMA},
    {"json": SCHEMA, "disable_any_whitespace": True},
    {"regex": "[a-c]{2,4}(-[0-9]{1,3})?é?"},
    {"choice": ["yes", "no", "yes and no", "é"]},
    {"grammar": GRAMMAR},
]
NUM_PROMPTS = 10


@pytest.fixture(scope="module")
def engine():
    with engines_with_grammars() as make:
        yield make


def is_in_form(form, text):
    if "regex" in form:
        return re.fullmatch(form["regex"], text) is not None
    if "choice" in form:
        return text in form["choice"]
    if "grammar" in form:
        return re.fullmatch(r"\((?:[a-c]{1,2}|\(.*\))(?:,(?:[a-c]{1,2}|\(.*\)))*\)", text) is not None
    try:
        value = json.loads(text)
    except ValueError:
        return False
    is_compact = not form.get("disable_any_whitespace") or " " not in re.sub(r'"[^"]*"', "", text)
    return is_compact and Draft202012Validator(form["json"]).is_valid(value)


def params(i, **others):
    return SamplingParams(**{"seed": i, "max_tokens": 60, "structured_outputs": FORMS[i % len(FORMS)], **others})


def prompt(i):
    return f"prompt {i}"


def texts(llm, **others):
    """(text, finish reason) of each sample."""
    asked = [params(i, **others) for i in range(NUM_PROMPTS)]
    outputs = llm.generate([prompt(i) for i in range(NUM_PROMPTS)], asked, use_tqdm=False)
    llm.parts.engine.scheduler.reset_prefix_cache()
    assert all_pages_are_back(llm)
    assert is_without_grammars(llm)
    return [[(text.text, text.finish_reason) for text in output.outputs] for output in outputs]


@pytest.fixture(scope="module")
def expected(engine):
    return texts(engine(), n=3)


def test_texts_that_end_are_in_their_form(expected):
    ended = [(i, text) for i, samples in enumerate(expected) for text, reason in samples if reason == "stop"]
    assert len(ended) > 20
    assert {i % len(FORMS) for i, _ in ended} == set(range(len(FORMS)))
    assert [(i, text) for i, text in ended if not is_in_form(FORMS[i % len(FORMS)], text)] == []
    assert len({text for _, text in ended}) > 12


@pytest.mark.parametrize("streams", [False, True])
def test_a_text_that_ignores_its_end_ends_with_its_form(engine, streams):
    """Whose last token is part of the text: nothing of it is a sign of the end."""
    llm, asked = engine(), [params(i, ignore_eos=True) for i in range(NUM_PROMPTS)]
    if streams:
        pieces = [[out.outputs[0] for out in llm.stream(prompt(i), asked[i])] for i in range(NUM_PROMPTS)]
    else:
        outputs = llm.generate([prompt(i) for i in range(NUM_PROMPTS)], asked, use_tqdm=False)
        pieces = [output.outputs for output in outputs]
    found = [("".join(piece.text for piece in text), text[-1].finish_reason) for text in pieces]
    ended = [(i, text) for i, (text, reason) in enumerate(found) if reason == "stop"]
    assert {i % len(FORMS) for i, _ in ended} >= {2, 3, 4}
    assert [(i, text) for i, text in ended if not is_in_form(FORMS[i % len(FORMS)], text)] == []


def test_texts_without_a_form_are_in_none_of_them():
    """The control."""
    found = fake_llm().generate([prompt(0)] * 4, [SamplingParams(seed=i) for i in range(4)], use_tqdm=False)
    assert not any(is_in_form(form, output.outputs[0].text) for output in found for form in FORMS)


@pytest.mark.parametrize(
    "options",
    [{"num_pages": 26}, {"max_num_seqs": 1}, {"prefix_eviction": "lru"}, {"max_drafts": 3}],
    ids=["preempted", "one at a time", "prefixes cached", "drafts"],
)
def test_texts_do_not_depend_on_how_they_are_run(engine, expected, options):
    llm = engine(**options)
    if "max_drafts" in options:
        llm.parts.engine.scheduler.state.speculation = AlwaysDraft(llm.parts.sizes.max_num_seqs)
    with counted(llm) as seen:
        assert texts(llm, n=3) == expected
    proposed, accepted = np.sum(seen, axis=0) if seen else (0, 0)
    assert (proposed > accepted > 0) == ("max_drafts" in options)
    stats = llm.parts.engine.scheduler.stats
    assert bool(stats.num_preemptions) == ("num_pages" in options)
    if "prefix_eviction" in options:
        assert llm.parts.engine.scheduler.stats.num_cached_tokens


def test_text_does_not_depend_on_whether_tokens_are_forced(engine, expected):
    """With log-probabilities each token is drawn, and has one."""
    llm = engine()
    asked = [params(i, n=3, logprobs=1) for i in range(NUM_PROMPTS)]
    outputs = llm.generate([prompt(i) for i in range(NUM_PROMPTS)], asked, use_tqdm=False)
    samples = [sample for output in outputs for sample in output.outputs]
    assert all(len(sample.logprobs or []) == len(sample.token_ids) for sample in samples)
    for i, output in enumerate(outputs):
        for sample in output.outputs:
            assert sample.finish_reason == "length" or is_in_form(FORMS[i % len(FORMS)], sample.text)


def test_a_stream_is_the_whole_text(engine, expected):
    llm = engine()
    for i in range(len(FORMS)):
        pieces = [piece.outputs[0].text for piece in llm.stream(prompt(i), params(i))]
        assert "".join(pieces) == expected[i][0][0]


@pytest.mark.parametrize("num_rounds", [1, 5])
def test_rows_in_a_mixed_batch_are_not_changed_also_where_those_without_a_form_draw_several_tokens(
    engine, expected, num_rounds
):
    alone = fake_llm().generate(["x"] * 4, [SamplingParams(seed=i) for i in range(4)], use_tqdm=False)
    asked = [SamplingParams(seed=i) if i < 4 else params(i) for i in range(8)]
    llm, prompts = engine(), ["x"] * 4 + [prompt(i) for i in range(4, 8)]
    with driven(llm, num_rounds, is_overlapped=True) as rounds:
        mixed = llm.generate(prompts, asked, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in mixed[:4]] == [output.outputs[0].token_ids for output in alone]
    assert [output.outputs[0].text for output in mixed[4:]] == [expected[i][0][0] for i in range(4, 8)]
    assert max(rounds) == num_rounds


def test_a_form_that_cannot_be_kept_to_is_refused_before_anything_runs(engine):
    llm = engine()
    refused = [
        ({"json": {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}}, "#/properties/a"),
        ({"regex": "("}, "regex"),
        ({"grammar": "start: other"}, "grammar"),
        ({"json": {"type": "string", "minLength": 5, "maxLength": 2}}, "json"),
    ]
    for form, reason in refused:
        with pytest.raises(RequestError, match=r"cannot be honou?red") as error:
            llm.generate([prompt(0), prompt(1)], [params(0), params(1, structured_outputs=form)], use_tqdm=False)
        assert error.value.param == "structured_outputs"
        assert reason in str(error.value)
        assert not llm.parts.engine.has_work
    with pytest.raises(RequestError, match="not supported by beam search"):
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, "structured_outputs": FORMS[0]})


YES, END = [*b"yes"], 262
COMPLETE = {
    "its end is not allowed": {"allowed_token_ids": YES},
    "its end is too early": {"min_tokens": 20},
    "its end is a bad word": {"bad_words": ["<|im_end|>"], "allowed_token_ids": [*YES, END]},
    "nothing after it is allowed": {"allowed_token_ids": YES, "structured_outputs": {"regex": "yes!*"}},
    "nothing after it is allowed, nor is its end": {
        "allowed_token_ids": [*YES, END],
        "min_tokens": 20,
        "structured_outputs": {"regex": "yes!*"},
    },
    "it ignores its end": {
        "allowed_token_ids": YES,
        "ignore_eos": True,
        "structured_outputs": {"regex": "yes!*"},
    },
    "what follows is a bad word": {
        "bad_words": ["s!"],
        "min_tokens": 20,
        "structured_outputs": {"regex": "yes!*"},
    },
}


@pytest.mark.parametrize("name", COMPLETE)
@pytest.mark.parametrize("others", [{}, {"logprobs": 0}, {"stop": "never"}], ids=str)
def test_a_text_in_its_form_that_cannot_go_on_ends_there(engine, expected, name, others):
    llm = engine()
    asked = params(1, **{"structured_outputs": {"choice": ["yes"]}} | others | COMPLETE[name])
    outputs = llm.generate([prompt(0), prompt(1), prompt(2)], [params(0), asked, params(2)], use_tqdm=False)
    (ended,) = outputs[1].outputs
    assert (ended.text, ended.token_ids, ended.finish_reason, ended.stop_reason) == ("yes", YES, "stop", None)
    assert [outputs[i].outputs[0].text for i in (0, 2)] == [expected[i][0][0] for i in (0, 2)]
    assert is_without_grammars(llm)


class Yes(FakeModel):
    """Says yes, so that its drafts do."""

    def draw(self, prefix, seed, index, position, is_allowed):
        said = YES[(position - len(prompt(0))) % 3]
        return next(filter(is_allowed, [said, *range(self.vocab_size)]), None)


@pytest.mark.parametrize("name", COMPLETE)
def test_such_a_text_ends_there_with_drafts(engine, name):
    llm = engine(Yes(264), max_drafts=3)
    llm.parts.engine.scheduler.state.speculation = AlwaysDraft(llm.parts.sizes.max_num_seqs)
    asked = params(1, **{"structured_outputs": {"choice": ["yes"]}, "logprobs": 0} | COMPLETE[name])
    with counted(llm) as seen:
        outputs = llm.generate([prompt(i) for i in range(9)], asked, use_tqdm=False)
    found = [(ended.text, ended.finish_reason) for output in outputs for ended in output.outputs]
    assert found == [("yes", "stop")] * 9
    assert bool(seen) == ("bad word" not in name), "bad words of several tokens go without drafts"


def test_a_form_of_no_text_may_end_before_it_begins(engine):
    (output,) = engine().generate([prompt(0)], params(0, structured_outputs={"regex": "a*"}, allowed_token_ids=[98]))
    (ended,) = output.outputs
    assert (ended.text, ended.token_ids, ended.finish_reason, ended.stop_reason) == ("", [], "stop", None)


def test_min_tokens_is_kept_while_a_form_can_go_on(engine):
    asked = [params(i, structured_outputs={"regex": "(yes)+"}, min_tokens=20) for i in range(4)]
    outputs = engine().generate([prompt(0)] * 4, asked, use_tqdm=False)
    assert min(len(output.outputs[0].token_ids) for output in outputs) >= 20


def test_a_dead_end_ends_its_request_alone_with_a_reason(engine, expected):
    """Only b may be drawn, and no text of the form has one."""
    llm = engine()
    asked = [params(0), params(1, structured_outputs={"choice": ["yes"]}, allowed_token_ids=[98]), params(2)]
    outputs = llm.generate([prompt(0), prompt(1), prompt(2)], asked, use_tqdm=False)
    (dead,) = outputs[1].outputs
    assert (dead.finish_reason, dead.token_ids) == ("error", [])
    assert "allows no token" in str(dead.stop_reason)
    assert "allowed_token_ids" in str(dead.stop_reason)
    assert [outputs[i].outputs[0].text for i in (0, 2)] == [expected[i][0][0] for i in (0, 2)]


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_stop_token_that_is_forced_is_shown_as_one_that_is_drawn(engine, is_shown):
    """Whether or not the text is searched for stop strings: with log-probabilities each token is drawn."""
    llm, form = engine(), {"regex": "abcd"}
    asked = [
        params(1, structured_outputs=form, stop_token_ids=[99], include_stop_str_in_output=is_shown, **others)
        for others in ({"logprobs": 0}, {}, {"stop": "never"})
    ]
    samples = [output.outputs[0] for output in llm.generate([prompt(0)] * 3, asked, use_tqdm=False)]
    found = [(sample.text, sample.token_ids, sample.finish_reason, sample.stop_reason) for sample in samples]
    assert found == [("abc" if is_shown else "ab", [97, 98, 99], "stop", 99)] * 3
    pieces = [piece.outputs[0].text for piece in llm.stream(prompt(0), asked[2])]
    assert "".join(pieces) == found[0][0]


def grammar_processes():
    children = [int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]
    return [pid for pid in children if b"grammar_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_killing_the_grammar_processes_changes_no_text(engine, expected):
    llm, killed, steps = engine(), [], []

    def kill(_):
        steps.append(1)
        if len(steps) in (4, 9):
            for pid in grammar_processes():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    llm.parts.engine.observer = kill
    assert texts(llm, n=3) == expected
    assert len(killed) >= 2
