"""The real `openai` client on every endpoint: it reads what `LLM` returns."""

import base64

import numpy as np
import openai
import pytest

from jaxserve import SamplingParams
from tests.support.fakes.fake_llm import PLAIN_TEMPLATE, fake_llm
from tests.support.serving.http_server import NAME, running
from tests.support.serving.recited_text import SAID, generated

STOPS = [None, "é", ["caf", "😀"], "; ", ["never"]]


def joined(chunks):
    """Texts and finish reasons of a stream, by index; each choice ends exactly once."""
    texts, reasons = {}, {}
    for chunk in chunks:
        for choice in chunk.choices:
            said = choice.text if chunk.object == "text_completion" else choice.delta.content
            texts[choice.index] = texts.get(choice.index, "") + (said or "")
            if choice.finish_reason is not None:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    return texts, reasons


def test_a_completion_equals_the_engine_s(client):
    answer = client.completions.create(model=NAME, prompt="hello", max_tokens=20)
    expected = generated("hello", max_tokens=20).outputs[0]
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (expected.text, "length")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (1, 20, 21)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")


@pytest.mark.parametrize("stop", STOPS)
def test_streaming_equals_not_streaming_for_fifty_prompts(client, stop):
    """Ten prompts for each of five kinds of stop strings, in multi-byte text, of completions and of chats."""
    for i in range(5):
        asked = {"model": NAME, "stop": stop, "max_tokens": 30 + i, "n": 1 + i % 3, "seed": i}
        whole = client.completions.create(prompt=f"prompt {i}", **asked)
        expected = {c.index: (c.text, c.finish_reason) for c in whole.choices}
        texts, reasons = joined(client.completions.create(prompt=f"prompt {i}", stream=True, **asked))
        assert {index: (texts[index], reasons[index]) for index in texts} == expected
        messages = [{"role": "user", "content": f"question {i} é"}]
        whole = client.chat.completions.create(messages=messages, **asked)
        expected = {c.index: (c.message.content, c.finish_reason) for c in whole.choices}
        texts, reasons = joined(client.chat.completions.create(messages=messages, stream=True, **asked))
        assert {index: (texts[index], reasons[index]) for index in texts} == expected
        assert len(expected) == asked["n"]


def test_choices_are_counted_prompt_by_prompt(client):
    prompts = ["X", "YY", "ZZZ"]
    asked = {"model": NAME, "prompt": prompts, "n": 2, "max_tokens": 9, "echo": True}
    whole = client.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == list(range(6))
    assert all(choice.text.startswith(prompts[choice.index // 2]) for choice in whole.choices)
    texts, _ = joined(client.completions.create(stream=True, **asked))
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert whole.usage.prompt_tokens == 6


def test_greedy_samples_are_equal_count_as_many_and_are_computed_once():
    asked = {"model": NAME, "max_tokens": 5, "n": 3, "temperature": 0, "seed": 1, "extra_body": {"ignore_eos": True}}
    with running(fake_llm()) as server:
        client = server.openai()
        answer = client.completions.create(prompt=["hello", "bye"], **asked)
        chunks = list(client.completions.create(prompt=["hello", "bye"], stream=True, **asked))
        texts = [choice.text for choice in answer.choices]
        assert texts == [texts[0]] * 3 + [texts[3]] * 3
        for choice in answer.choices:
            parts = [c.text for chunk in chunks for c in chunk.choices if c.index == choice.index]
            assert "".join(parts) == choice.text
        assert answer.usage.completion_tokens == 30
        assert server.state.engine.metrics.num_generated_tokens == 2 * 10


def test_prompts_may_be_token_ids(client):
    ids = client.completions.create(model=NAME, prompt=[104, 105], max_tokens=3, extra_body={"return_token_ids": True})
    assert ids.choices[0].prompt_token_ids == ids.prompt_token_ids == [104, 105]
    assert len(ids.choices[0].token_ids) == 3
    both = client.completions.create(model=NAME, prompt=[[104], [105, 106]], max_tokens=3)
    assert (len(both.choices), both.usage.prompt_tokens) == (2, 3)


def test_the_first_chunk_of_a_chat_has_the_role_and_the_last_one_usage(client):
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}]}]
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model=NAME, messages=messages, max_tokens=5, n=2, stream=True, stream_options=options
        )
    )
    firsts = [c for c in chunks if c.choices and c.choices[0].delta.role]
    assert [(c.choices[0].index, c.choices[0].delta.role, c.choices[0].delta.content) for c in firsts] == [
        (0, "assistant", ""),
        (1, "assistant", ""),
    ]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 10
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1


def test_continuous_usage_counts_up(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(
        client.completions.create(model=NAME, prompt="hello", max_tokens=9, stream=True, stream_options=options)
    )
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 9
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {1}


def test_logprobs_of_completions_equal_the_engine_s(client):
    expected = generated("hello", max_tokens=6, logprobs=3, prompt_logprobs=3)
    asked = {"model": NAME, "prompt": "hello", "max_tokens": 6, "logprobs": 3, "echo": True}
    found = client.completions.create(**asked).choices[0].logprobs
    ids = [*expected.prompt_token_ids, *expected.outputs[0].token_ids]
    entries = [*expected.prompt_logprobs, *expected.outputs[0].logprobs]
    assert found.token_logprobs == [None if e is None else e[i].logprob for i, e in zip(ids, entries, strict=True)]
    assert found.top_logprobs[0] is None
    assert all(3 <= len(top) <= 4 or len(set(top)) < 4 for top in found.top_logprobs[1:])
    chunks = [c.choices[0].logprobs for c in client.completions.create(stream=True, **asked)]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [item for part in chunks if part for item in getattr(part, name)] == getattr(found, name)


@pytest.mark.parametrize("prompt", ["hé", list("hé".encode()), list("hé".encode()[:-1])], ids=["text", "ids", "half"])
@pytest.mark.parametrize("echo", [False, True])
def test_offsets_are_those_of_the_characters_that_tokens_are_part_of(client, prompt, echo):
    """Each token is a byte: the character at its offset contains it, or replaces an incomplete character."""
    asked = {"model": NAME, "prompt": prompt, "max_tokens": 40, "logprobs": 1, "echo": echo}
    choice = client.completions.create(extra_body={"return_token_ids": True}, **asked).choices[0]
    ids = [*(choice.prompt_token_ids if echo else ()), *choice.token_ids]
    pairs = list(zip(ids, choice.logprobs.text_offset, strict=True))
    assert sorted({offset for _, offset in pairs}) == list(range(len(choice.text)))
    for token, offset in pairs:
        char = choice.text[offset]
        assert token in char.encode() or (char == "\ufffd" and token >= 0x80)
    assert len(choice.text) < len(pairs)  # some characters have several tokens
    assert choice.text.count("\ufffd") < 4


def test_echo_is_the_same_when_streamed_though_samples_start_after_the_prompt_was_sent(client):
    prompts = [[110, 97, 0xC3], [104, 105, 106]]  # the first ends inside a character
    asked = {"model": NAME, "prompt": prompts, "n": 3, "max_tokens": 5, "logprobs": 1, "echo": True}
    whole = client.completions.create(**asked)
    assert whole.choices[0].text.startswith("naïve")
    chunks = list(client.completions.create(stream=True, **asked))
    assert joined(chunks)[0] == {choice.index: choice.text for choice in whole.choices}
    for choice in whole.choices:
        parts = [c.choices[0].logprobs for c in chunks if c.choices and c.choices[0].index == choice.index]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [item for part in parts if part for item in getattr(part, name)] == getattr(choice.logprobs, name)


def test_the_number_of_prompt_logprobs_is_independent_of_echo(client):
    asked = {"model": NAME, "prompt": "abcd", "max_tokens": 1, "logprobs": 4, "echo": True}
    choice = client.completions.create(extra_body={"prompt_logprobs": 1}, **asked).choices[0]
    assert {len(position) for position in choice.prompt_logprobs[1:]} <= {1, 2}
    assert max(len(position) for position in choice.logprobs.top_logprobs[1:]) >= 3


def test_what_evaluation_harnesses_read(client):
    """lm-eval's local-completions: token ids, echo, one token: arrays of all prompt tokens and one more."""
    asked = {"prompt": [[104, 101, 108], [108, 111]], "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    answer = client.completions.create(model=NAME, **asked)
    assert [len(choice.logprobs.token_logprobs) for choice in answer.choices] == [4, 3]
    assert [choice.logprobs.token_logprobs[0] for choice in answer.choices] == [None, None]
    assert all(isinstance(value, float) for choice in answer.choices for value in choice.logprobs.token_logprobs[1:])
    alone = client.completions.create(model=NAME, **{**asked, "max_tokens": 0})
    for choice, longer in zip(alone.choices, answer.choices, strict=True):
        assert choice.logprobs.token_logprobs == longer.logprobs.token_logprobs[:-1]
        assert longer.text.startswith(choice.text)
    assert alone.usage.completion_tokens == 0


def test_logprobs_of_chats(client):
    asked = {"model": NAME, "messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "logprobs": True}
    content = client.chat.completions.create(top_logprobs=2, **asked).choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in content).decode("utf-8", "ignore") in SAID * 2
    assert {len(entry.top_logprobs) for entry in content} == {2}
    assert all(e.top_logprobs[0].logprob >= e.top_logprobs[1].logprob for e in content)
    assert [e.top_logprobs for e in client.chat.completions.create(**asked).choices[0].logprobs.content] == [[]] * 8
    as_ids = client.chat.completions.create(extra_body={"return_tokens_as_token_ids": True}, **asked)
    assert all(e.token.startswith("token_id:") for e in as_ids.choices[0].logprobs.content)


def test_prompt_logprobs(client):
    answer = client.completions.create(model=NAME, prompt="abc", max_tokens=1, extra_body={"prompt_logprobs": 1})
    first, *others = answer.choices[0].prompt_logprobs
    assert first is None
    assert all(set(entry) == {"logprob", "rank", "decoded_token"} for each in others for entry in each.values())
    assert [str(ord(letter)) in each for letter, each in zip("bc", others, strict=True)] == [True, True]


def test_embeddings_in_numbers_and_in_base64(client):
    floats = client.embeddings.create(model=NAME, input=["one", "two"], encoding_format="float")
    coded = client.embeddings.create(model=NAME, input=["one", "two"])  # the client requests base64 and decodes it
    for one, other in zip(floats.data, coded.data, strict=True):
        np.testing.assert_array_equal(np.float32(one.embedding), np.float32(other.embedding))
    assert [each.index for each in floats.data] == [0, 1]
    assert floats.usage.prompt_tokens == 6


def test_base64_is_little_endian_float32(server):
    asked = {"input": "one", "encoding_format": "base64"}
    coded = server.post("/v1/embeddings", asked).json()["data"][0]["embedding"]
    floats = server.post("/v1/embeddings", {"input": "one"}).json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(coded), "<f4"), np.float32(floats))


def test_models(client):
    (model,) = client.models.list().data
    assert (model.id, model.object, model.max_model_len) == (NAME, "model", 96)
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError, match="The model `other` does not exist"):
        client.completions.create(model="other", prompt="x")


def test_messages_of_tools_and_null_contents_are_rendered(client):
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    answer = client.chat.completions.create(model=NAME, messages=messages, max_tokens=1)
    text = "[user]1+1<|end|>[assistant]<|end|>[tool]2<|end|>[assistant]"
    (expected,) = fake_llm().generate(text, SamplingParams(max_tokens=1), use_tqdm=False)
    assert answer.usage.prompt_tokens == len(expected.prompt_token_ids) + 1  # the template's own first token


def test_a_chat_continues_the_last_message(client):
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "so"}]
    extra = {"continue_final_message": True, "add_generation_prompt": False, "echo": True}
    for content in ("so", [{"type": "text", "text": "so"}]):
        messages[1]["content"] = content
        answer = client.chat.completions.create(model=NAME, messages=messages, max_tokens=1, extra_body=extra)
        assert answer.choices[0].message.content.startswith("so")
        assert len(answer.choices[0].message.content) > 2


def test_a_response_message_of_the_client_is_valid_in_the_next_turn():
    """Its `tool_calls` is null, and templates such as Llama 3.1's test whether the field exists."""
    asking = PLAIN_TEMPLATE.replace(
        "{{ m.content }}", "{{ raise_exception('a call') if 'tool_calls' in m else m.content }}"
    )
    with running(fake_llm(template=asking)) as server, server.openai() as client:
        messages = [{"role": "user", "content": "x"}]
        said = client.chat.completions.create(model=NAME, messages=messages, max_tokens=1).choices[0].message
        whole = said.model_dump()
        assert whole["tool_calls"] is None
        for last in (whole, {**whole, "tool_calls": []}):
            client.chat.completions.create(model=NAME, messages=[*messages, last, *messages], max_tokens=1)
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        with pytest.raises(openai.BadRequestError, match="a call"):
            client.chat.completions.create(model=NAME, messages=[{**whole, "tool_calls": [call]}], max_tokens=1)
