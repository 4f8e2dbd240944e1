"""Adapters of requests: every call that takes one gives it to the engine, registers it once, and refuses by name."""

import threading

import pytest

from jaxserve import BeamSearchParams, LoRARequest, RequestError, SamplingParams
from tests.support.fakes.async_llm import run
from tests.support.fakes.fake_adapters import fake_adapters
from tests.support.fakes.fake_llm import fake_llm

POET, CLERK = LoRARequest("poet", "/poet", 7), LoRARequest("clerk", "/clerk")
SHORT = SamplingParams(max_tokens=2, ignore_eos=True)
CHAT = [{"role": "user", "content": "hi"}]
QUIET = {"use_tqdm": False}


def adapted_llm(*names, **options):
    adapters, reader = fake_adapters(*names, **options)
    return fake_llm(adapters=adapters), reader


def seen(llm):
    """The names of the adapters of each request that reaches the engine."""
    names, scheduler = [], llm.parts.engine.scheduler
    add_sharing, add_beams = scheduler.add_sharing, scheduler.add_beams

    def note(requests):
        names.extend(request.adapter and request.adapter.name for request in requests)

    scheduler.add_sharing = lambda group, *rest: (note(group), add_sharing(group, *rest))[1]
    scheduler.add_beams = lambda request, *rest: (note([request]), add_beams(request, *rest))[1]
    return names


CALLS = {
    "generate": lambda llm, lora: llm.generate(["a", "b"], SHORT, lora_request=lora, **QUIET),
    "chat": lambda llm, lora: llm.chat([CHAT, CHAT], SHORT, lora_request=lora, **QUIET),
    "score": lambda llm, lora: llm.score([("a", "b"), ("a", "c")], lora_request=lora, **QUIET),
    "embed": lambda llm, lora: llm.embed(["a", "b"], lora_request=lora, **QUIET),
    "beam_search": lambda llm, lora: llm.beam_search(
        ["a", "b"], BeamSearchParams(beam_width=2, max_tokens=2, ignore_eos=True), lora_request=lora, **QUIET
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_prompt_runs_with_its_adapter(call):
    for given, expected in (
        (POET, ["poet", "poet"]),
        ([POET, None], ["poet", None]),
        ((CLERK, POET), ["clerk", "poet"]),
        (None, [None, None]),
    ):
        llm, _ = adapted_llm()
        names = seen(llm)
        call(llm, given)
        assert names == expected


def test_a_stream_runs_with_its_adapter():
    llm, _ = adapted_llm()
    assert [piece.lora_request for piece in llm.stream("a", SHORT, lora_request=POET)][-1] is POET


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_engine_without_adapters_refuses_them_by_name(call):
    with pytest.raises(RequestError, match="enable_lora") as caught:
        call(fake_llm(), [None, POET])
    assert caught.value.param == "lora_request"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_no_adapter_is_refused(call):
    for given, message in ((["poet", None], "not str"), ([POET], "2 .*s but 1"), (7, "not int")):
        llm, reader = adapted_llm()
        with pytest.raises(RequestError, match=message) as caught:
            call(llm, given)
        assert caught.value.param == "lora_request"
        assert not reader.num_reads


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_adapter_of_another_engine_is_refused(call):
    """Both have the same number; an engine without adapters refuses it by the option that it lacks."""
    (own, _), (other, _) = adapted_llm(), adapted_llm()
    mine, others = own.load_adapter(POET), other.load_adapter(CLERK)
    assert mine.adapter_id == others.adapter_id
    names = seen(own)
    with pytest.raises(RequestError, match=r"lora_request: adapter 'clerk' is not one of this engine") as caught:
        call(own, [mine, others])
    assert caught.value.param == "lora_request"
    assert not names
    call(own, [mine, None])
    assert names == ["poet", None]
    with pytest.raises(RequestError, match="enable_lora") as caught:
        call(fake_llm(), [None, others])
    assert caught.value.param == "lora_request"


def test_an_adapter_that_was_unloaded_serves_those_who_hold_it():
    llm, _ = adapted_llm()
    poet = llm.load_adapter(POET)
    llm.unload_adapter("poet")
    (output,) = llm.generate("a", SHORT, lora_request=poet, **QUIET)
    assert output.outputs[0].finish_reason == "length"


def test_outputs_repeat_the_request():
    llm, _ = adapted_llm()
    adapted, plain = llm.generate(["a", "b"], SHORT, lora_request=[POET, None], **QUIET)
    assert adapted.lora_request is POET
    assert adapted.outputs[0].lora_request is POET
    assert adapted.lora_request.lora_int_id == 7
    assert plain.lora_request is None
    assert plain.outputs[0].lora_request is None
    (searched,) = llm.beam_search(
        "a", BeamSearchParams(beam_width=2, max_tokens=2, ignore_eos=True), lora_request=CLERK, **QUIET
    )
    assert [sequence.lora_request for sequence in searched.sequences] == [CLERK, CLERK]


def test_an_adapter_is_read_once():
    llm, reader = adapted_llm()
    for _ in range(2):
        llm.generate(["a"] * 9, SHORT, lora_request=[POET, CLERK, None] * 3, **QUIET)
    assert reader.num_reads == {"/poet": 1, "/clerk": 1}
    assert [adapter.name for adapter in llm.adapters] == ["poet", "clerk"]


def test_a_prompt_is_refused_before_files_are_read():
    llm, reader = adapted_llm()
    with pytest.raises(RequestError):
        llm.generate(["a", ""], SHORT, lora_request=POET, **QUIET)
    assert not reader.num_reads


def test_bad_files_refuse_the_call_alone():
    def fail(path):
        if path == "/bad":
            raise ValueError("adapter_config.json is missing")

    llm, _ = adapted_llm("poet", before=fail)
    with pytest.raises(RequestError, match=r"adapter_config.json is missing"):
        llm.generate(["a", "b"], SHORT, lora_request=[POET, LoRARequest("x", "/bad")], **QUIET)
    (output,) = llm.generate("a", SHORT, lora_request=POET, **QUIET)
    assert output.finished


def test_a_name_has_one_path_until_it_is_unloaded_or_replaced():
    llm, _ = adapted_llm()
    first = llm.load_adapter(POET)
    assert llm.load_adapter(POET) is first
    other = LoRARequest("poet", "/elsewhere")
    with pytest.raises(RequestError, match="another adapter is named 'poet'"):
        llm.load_adapter(other)
    replaced = llm.load_adapter(other, in_place=True)
    assert replaced.adapter_id != first.adapter_id
    assert llm.adapters == [replaced]
    assert llm.unload_adapter("poet") is replaced
    assert not llm.adapters
    with pytest.raises(RequestError, match="poet") as caught:
        llm.unload_adapter("poet")
    assert caught.value.param == "lora_name"


def test_only_equal_adapters_share_a_scored_context():
    """Requests that share a context are one group of the scheduler, whose KV they share."""
    llm, _ = adapted_llm()
    groups, add_sharing = [], llm.parts.engine.scheduler.add_sharing
    llm.parts.engine.scheduler.add_sharing = lambda group, *rest: (groups.append(group), add_sharing(group, *rest))[1]
    llm.score([("a", "b"), ("a", "c"), ("a", "d"), ("a", "e")], lora_request=[POET, None, POET, CLERK], **QUIET)
    assert [[request.lora_request for request in group] for group in groups] == [[POET, POET], [None], [CLERK]]


def test_coroutines_take_adapters():
    llm, reader = adapted_llm()
    names = seen(llm)

    async def main(served):
        whole = await served.generate("a", SHORT, lora_request=POET)
        chat = await served.chat(CHAT, SHORT, lora_request=CLERK)
        pieces = [piece async for piece in served.stream("a", SHORT, lora_request=POET)]
        await served.embed("a", lora_request=CLERK)
        assert [adapter.name for adapter in served.adapters] == ["poet", "clerk"]
        await served.unload_adapter("clerk")
        await served.load_adapter(LoRARequest("clerk", "/other"))
        return [whole.lora_request, chat.lora_request, pieces[-1].lora_request]

    assert run(llm, main) == [POET, CLERK, POET]
    assert names == ["poet", "clerk", "poet", "clerk"]
    assert reader.num_reads == {"/poet": 1, "/clerk": 1, "/other": 1}


def test_files_are_read_outside_the_event_loop():
    threads = []
    llm, _ = adapted_llm(before=lambda path: threads.append(threading.current_thread()))

    async def main(served):
        await served.generate("a", SHORT, lora_request=POET)
        await served.load_adapter(CLERK)
        return threading.current_thread()

    loop_thread = run(llm, main)
    assert len(threads) == 2
    assert loop_thread not in threads
