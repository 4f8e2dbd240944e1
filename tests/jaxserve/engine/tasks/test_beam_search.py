"""`LLM.beam_search` over the fake runner: its results, what it refuses, and the state after an interrupt."""

from functools import cache, reduce

import numpy as np
import pytest

from jaxserve import BeamSearchParams, LoRARequest, SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.core.sequence import TokenLogprobs
from jaxserve.engine.tasks.beam_rules import BeamFrontier, BeamRules
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel, extend_prefix
from tests.support.fakes.fake_adapters import fake_adapters
from tests.support.fakes.fake_llm import fake_llm

VOCAB = 264
PROMPTS = ["Once", [7, 8, 9], {"prompt_token_ids": [5] * 21}, "upon a time", "there was"]


def params_of(width: int = 2, max_tokens: int = 28, **options) -> BeamSearchParams:
    return BeamSearchParams(beam_width=width, max_tokens=max_tokens, **options)


def search(llm, prompts=PROMPTS, params: BeamSearchParams | None = None):
    return llm.beam_search(prompts, params or params_of(), use_tqdm=False)


def expected(ids: list[int], params: BeamSearchParams) -> list[tuple[list[int], float]]:
    """Tokens and scores by the rules alone, over the fake model."""
    return _expected(tuple(ids), params)


@cache
def _expected(ids: tuple[int, ...], params: BeamSearchParams) -> list[tuple[list[int], float]]:
    eos_ids = () if params.ignore_eos else fake_llm().parts.input_processor.eos_ids
    beams = BeamFrontier(
        BeamRules(params.beam_width, params.max_tokens, eos_ids, params.length_penalty, params.early_stopping)
    )
    while not beams.is_done:
        known = []
        for node in beams.running:
            text = [*ids] + [step.token for step in ([] if node is None else node.path())]
            logprobs = FakeModel(VOCAB).logprobs(reduce(extend_prefix, text, EMPTY_PREFIX)).astype(np.float32)
            top = np.argsort(-logprobs, kind="stable")[: beams.rules.num_candidates]
            known.append(TokenLogprobs(0.0, 1, top, logprobs[top]))
        beams.advance(known)
    return [([*ids] + [step.token for step in ended.node.path()], float(ended.score)) for ended in beams.ended]


def ids_of(llm, prompt) -> list[int]:
    if isinstance(prompt, dict):
        return prompt["prompt_token_ids"]
    return llm.get_tokenizer().encode(prompt) if isinstance(prompt, str) else prompt


def check_all_free(llm) -> None:
    assert llm.parts.engine.scheduler.stats.num_pages_free == llm.parts.engine.scheduler.state.pool.num_pages - 1
    assert not llm.output_processor.has_work


@pytest.mark.parametrize("limits", [{}, {"max_num_seqs": 4}, {"num_pages": 27}])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_prompt_gets_the_results_of_the_rules_however_many_run_at_once(limits, width):
    llm = fake_llm(max_logprobs=20, **limits)
    num_preemptions = 0
    for options in ({}, {"length_penalty": 0.0, "early_stopping": True}, {"early_stopping": "never"}):
        params = params_of(width, include_stop_str_in_output=True, **options)
        for prompt, out in zip(PROMPTS, search(llm, params=params), strict=True):
            found = [(s.tokens, s.score) for s in out.sequences]
            assert found == expected(ids_of(llm, prompt), params)
        num_preemptions += llm.parts.engine.scheduler.stats.num_preemptions
        check_all_free(llm)
    assert (num_preemptions > 0) == ("num_pages" in limits)


def test_a_sequence_has_all_fields():
    llm = fake_llm(max_logprobs=20)
    tokenizer = llm.get_tokenizer()
    with_end, without = (search(llm, params=params_of(4, include_stop_str_in_output=keeps)) for keeps in (True, False))
    reasons = set()
    for out, cut in zip(with_end, without, strict=True):
        assert [s.score for s in out.sequences] == sorted((s.score for s in out.sequences), reverse=True)
        for one, other in zip(out.sequences, cut.sequences, strict=True):
            reasons.add(one.finish_reason)
            own = one.tokens[len(one.tokens) - len(one.logprobs) :]
            assert one.cum_logprob == pytest.approx(sum(p[t].logprob for p, t in zip(one.logprobs, own, strict=True)))
            assert one.score == pytest.approx(one.cum_logprob / len(own))
            assert all(p[t].rank <= len(p) == 12 for p, t in zip(one.logprobs, own, strict=True))
            assert (one.finish_reason == "stop") == (own[-1] in llm.parts.input_processor.eos_ids) == (len(own) < 28)
            assert other.tokens == (one.tokens[:-1] if one.finish_reason == "stop" else one.tokens)
            assert (other.logprobs, other.score) == (one.logprobs, one.score)
            assert one.text == other.text == tokenizer.decode(one.tokens)
    assert reasons == {"stop", "length"}


def test_ignore_eos_lets_no_text_end_early():
    llm = fake_llm(max_logprobs=20)
    for out in search(llm, params=params_of(3, ignore_eos=True)):
        assert {(s.finish_reason, len(s.logprobs)) for s in out.sequences} == {("length", 28)}


def test_a_stream_goes_on_during_a_search_and_neither_changes():
    llm, params = fake_llm(max_logprobs=20), SamplingParams(max_tokens=30, seed=3, ignore_eos=True)
    (alone,) = llm.generate([[1, 2, 3]], params, use_tqdm=False)
    before = [s for out in search(llm) for s in out.sequences]
    stream = llm.stream([1, 2, 3], params)
    tokens = list(next(stream).outputs[0].token_ids)
    assert [s for out in search(llm) for s in out.sequences] == before
    tokens += [token for piece in stream for token in piece.outputs[0].token_ids]
    assert tokens == alone.outputs[0].token_ids
    check_all_free(llm)


def test_logits_that_are_not_finite_end_the_search_of_that_prompt_alone():
    prompts = [[i] for i in range(12)]
    outs = search(fake_llm(FakeModel(VOCAB, bad_chance=0.01), max_logprobs=20), prompts)
    for prompt, out in zip(prompts, outs, strict=True):
        if all(s.finish_reason == "error" for s in out.sequences):
            assert all(s.score is None and s.tokens[:1] == prompt for s in out.sequences)
            assert len({len(s.tokens) for s in out.sequences}) == 1
        else:
            found = [s.score for s in out.sequences]
            assert found == [score for _, score in expected(prompt, params_of())]
    num_failed = sum(out.sequences[0].finish_reason == "error" for out in outs)
    assert 0 < num_failed < len(prompts)


def test_an_adapter_that_cannot_be_read_again_ends_its_own_searches_with_the_reason():
    def fail(path: str) -> None:
        if failing and path == "/poet":
            raise OSError("the disk is gone")

    failing = []
    adapters, _ = fake_adapters("poet", before=fail)
    llm = fake_llm(max_logprobs=20, adapters=adapters)
    adapters.store._resident.clear()
    failing.append(True)
    poet = LoRARequest("poet", "/poet")
    adapted, plain = llm.beam_search([[1, 2], [3]], params_of(), lora_request=[poet, None], use_tqdm=False)
    assert [(s.tokens, s.finish_reason, s.score) for s in adapted.sequences] == [([1, 2], "error", None)]
    assert adapted.sequences[0].stop_reason == "adapter 'poet' cannot be read: the disk is gone"
    assert {(s.finish_reason, s.stop_reason) for s in plain.sequences} <= {("stop", None), ("length", None)}
    check_all_free(llm)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5, 9])
def test_an_interrupt_releases_all_pages_and_leaves_the_engine_usable(num_steps):
    llm = fake_llm(max_logprobs=20)
    before = search(llm)
    collect, left = llm.parts.runner.collect, iter(range(num_steps))

    def interrupted(ticket):
        if next(left, None) is None:
            llm.parts.runner.collect = collect
            raise KeyboardInterrupt
        return collect(ticket)

    llm.parts.runner.collect = interrupted
    with pytest.raises(KeyboardInterrupt):
        search(llm)
    check_all_free(llm)
    assert search(llm) == before


@pytest.mark.parametrize(
    ("param", "wrong"),
    [
        ("beam_width", {"beam_width": 0}),
        ("beam_width", {"beam_width": True}),
        ("max_tokens", {"max_tokens": 0}),
        ("temperature", {"temperature": 0.7}),
        ("length_penalty", {"length_penalty": float("nan")}),
        ("length_penalty", {"length_penalty": 1e3}),
        ("early_stopping", {"early_stopping": "always"}),
        ("early_stopping", {"early_stopping": 1}),
        ("ignore_eos", {"ignore_eos": 1}),
        ("include_stop_str_in_output", {"include_stop_str_in_output": None}),
        ("num_beams", {"num_beams": 4}),
    ],
)
def test_parameters_are_refused_by_name(param, wrong):
    with pytest.raises(RequestError) as caught:
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 3} | wrong)
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(
    ("param", "prompts", "width", "message"),
    [
        ("beam_width", PROMPTS, 9, "max_num_seqs=8"),
        ("beam_width", PROMPTS, 3, "max_logprobs is 5"),
        ("prompt", [[1], [VOCAB]], 1, "prompt 1"),
        ("prompt", [[1] * 96], 1, "context"),
    ],
)
def test_impossible_searches_are_refused_before_anything_runs(param, prompts, width, message):
    llm = fake_llm()
    with pytest.raises(RequestError, match=message) as caught:
        search(llm, prompts, params_of(width))
    assert caught.value.param == param
    check_all_free(llm)
    with pytest.raises(RequestError, match="BeamSearchParams"):
        llm.beam_search(PROMPTS, SamplingParams())
