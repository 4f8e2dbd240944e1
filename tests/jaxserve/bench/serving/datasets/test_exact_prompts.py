"""Prompts have exactly the specified lengths and exactly the specified common prefixes."""

import asyncio
import csv
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.bench.serving.datasets.encoders import LocalEncoder, ServerEncoder
from jaxserve.bench.serving.datasets.exact_prompts import build_requests, fit
from jaxserve.bench.serving.datasets.random_dataset import prefix_repetition, random_prompts
from jaxserve.bench.serving.datasets.request_specs import RequestSpec, Selection, Words, random_words
from jaxserve.bench.serving.datasets.text_files import custom, sharegpt
from jaxserve.bench.serving.datasets.traces import BLOCK_TOKENS, read_arrival_trace, trace
from jaxserve.bench.serving.datasets.words import FILLER, WORDS
from jaxserve.bench.serving.options import (
    CustomOptions,
    PrefixRepetitionOptions,
    RandomOptions,
    ShareGPTOptions,
    TraceOptions,
)
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.engine.inputs.prompt import Prompt
from tests.support.golden_tokenizers import tokenizer_of


class Pieces:
    """Words longer than `letters` are cut into pieces; `extra` tokens are added before each text."""

    def __init__(self, letters: int = 99, extra: int = 0) -> None:
        self.letters, self.extra, self.num_texts = letters, extra, 0

    async def encode(self, texts):
        self.num_texts += len(texts)
        counts = [self.extra + sum(-(-len(word) // self.letters) for word in text.split()) for text in texts]
        return [[0] * count for count in counts]


def written(drafts, encoder, **options):
    return asyncio.run(build_requests(drafts, encoder, **options))


def words(seed: int, count: int) -> Words:
    return Words(random_words(np.random.default_rng(seed), count), count)


@given(st.lists(st.integers(4, 80), min_size=1, max_size=8), st.integers(3, 9), st.integers(0, 3))
def test_a_text_has_its_tokens_whatever_words_fall_into(lengths, letters, extra):
    wanted = [words(i, n) for i, n in enumerate(lengths)]
    prompts = asyncio.run(fit(wanted, Pieces(letters, extra)))
    assert [len(prompt.token_ids) for prompt in prompts] == lengths
    for prompt, one in zip(prompts, wanted, strict=True):
        kept = [word for word in prompt.text.split() if word != FILLER]
        assert kept == [WORDS[i] for i in one.indices[: len(kept)]]


def test_no_word_is_the_filler():
    assert FILLER not in WORDS
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize("encoder", [Pieces(2), Pieces(extra=5)], ids=["filler of two tokens", "no room"])
def test_a_length_that_cannot_be_met_is_an_error(encoder):
    with pytest.raises(ConfigError, match="exactly 4 tokens"):
        asyncio.run(fit([Words(np.zeros(4, int), 4)], encoder))


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "llama3_1", "gemma3"])
@pytest.mark.parametrize("adds_special", [True, False])
def test_real_tokenizers_count_what_was_asked_for(name, adds_special):
    tokenizer = tokenizer_of(name)
    drafts = random_prompts(RandomOptions(random_input_len=60, random_range_ratio=0.9))(Selection(40, 3, 1))
    requests = written(drafts, LocalEncoder(tokenizer, adds_special=adds_special))
    for request, draft in zip(requests, drafts, strict=True):
        assert len(tokenizer.encode(request.prompt, adds_special)) == request.prompt_len == draft.prompt.num_tokens
    ids = written(drafts, LocalEncoder(tokenizer, adds_special=adds_special), sends_ids=True)
    assert [request.prompt for request in ids] == [tokenizer.encode(r.prompt, adds_special) for r in requests]


def test_lengths_depend_on_the_seed_and_words_on_the_run_too():
    dataset = random_prompts(RandomOptions(random_input_len=20, random_output_len=10, random_range_ratio=0.5))
    first, again, second, other = (
        dataset(draw)
        for draw in (Selection(300, 0, 1), Selection(300, 0, 1), Selection(300, 0, 2), Selection(300, 1, 1))
    )

    def lens(drafts):
        return [(draft.prompt.num_tokens, draft.output) for draft in drafts]

    def indices(drafts):
        return [draft.prompt.indices.tolist() for draft in drafts]

    assert indices(first) == indices(again)
    assert lens(first) == lens(second) != lens(other)
    assert not set(map(tuple, indices(first))) & set(map(tuple, indices(second)))
    assert {n for n, _ in lens(first)} == set(range(10, 31))
    assert {n for _, n in lens(first)} == set(range(5, 16))


def test_random_prompts_begin_alike_only_where_that_is_asked_for():
    options = RandomOptions(random_input_len=12, random_prefix_len=7)
    texts = [r.prompt.split() for r in written(random_prompts(options)(Selection(20, 0, 1)), Pieces())]
    assert {len(text) for text in texts} == {19}
    assert {common(a, b) for a, b in combinations(texts, 2)} <= {7, 8}


def common(a: list, b: list) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_prefixes_repeat_evenly_and_out_of_order():
    options = PrefixRepetitionOptions(
        prefix_repetition_num_prefixes=4, prefix_repetition_prefix_len=16, prefix_repetition_suffix_len=5
    )
    texts = [r.prompt.split() for r in written(prefix_repetition(options)(Selection(22, 0, 1)), Pieces())]
    prefixes = [tuple(text[:16]) for text in texts]
    assert sorted(prefixes.count(prefix) for prefix in set(prefixes)) == [5, 5, 6, 6]
    assert prefixes[:4] != prefixes[4:8]
    assert {len(text) for text in texts} == {21}
    assert len({tuple(text[16:]) for text in texts}) == 22


MOONCAKE = [
    {"timestamp": 3000, "input_length": 1500, "output_length": 7, "hash_ids": [5, 6, 9]},
    {"timestamp": 1000, "input_length": 1030, "output_length": 3, "hash_ids": [5, 6, 7]},
    {"timestamp": 4500, "input_length": 512, "output_length": 9, "hash_ids": [8]},
    {"timestamp": 4500, "input_length": 20, "output_length": 9000, "hash_ids": [8]},
]


@pytest.fixture
def mooncake(tmp_path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MOONCAKE))
    return path


def test_equal_blocks_get_equal_text_and_others_another(mooncake):
    dataset = trace(TraceOptions(), mooncake)
    requests = written(dataset(Selection(None, 0, 1)), Pieces(extra=1))
    assert [(r.prompt_len, r.output_len, r.arrival_s) for r in requests] == [
        (1030, 3, 0.0),
        (1500, 7, 2.0),
        (512, 9, 3.5),
        (20, 9000, 3.5),
    ]
    texts = [r.prompt.split() for r in requests]
    shared = {(0, 1): 2 * BLOCK_TOKENS, (2, 3): 19}  # one token of each prompt is not a word
    for (i, a), (j, b) in combinations(enumerate(texts), 2):
        assert shared.get((i, j), 0) <= common(a, b) <= shared.get((i, j), 0) + 1
    assert all(
        common(a, b.prompt.split()) < 2
        for a, b in zip(texts, written(dataset(Selection(4, 0, 2)), Pieces()), strict=True)
    )


def test_longer_requests_are_left_out_and_too_few_are_an_error(mooncake):
    dataset = trace(TraceOptions(trace_max_len=1100), mooncake)
    assert [draft.output for draft in dataset(Selection(None, 0, 1))] == [3, 9]
    with pytest.raises(RequestError, match="has 2 usable requests"):
        dataset(Selection(3, 0, 1))


def test_azure_traces_have_lengths_and_times_to_the_microsecond(tmp_path):
    path = tmp_path / "azure.csv"
    rows = [("2023-11-16 23:59:59.9799600", 374, 44), ("2023-11-17 00:00:00.0319600", 2, 109)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("TIMESTAMP", "ContextTokens", "GeneratedTokens"), *rows])
    requests = written(trace(TraceOptions(), path)(Selection(None, 0, 1)), Pieces())
    assert [(r.prompt_len, r.output_len) for r in requests] == [(374, 44), (2, 109)]
    assert requests[1].arrival_s - requests[0].arrival_s == pytest.approx(0.052)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", "{"),
        ("t.jsonl", '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}'),
        ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 0, "hash_ids": [1]}'),
        ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [-1]}'),
        ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1}'),
        ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808"),
        ("t.csv", "a,b\n1,2"),
        ("t.txt", "x"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(RequestError, match=name):
        read_arrival_trace(path)


def test_files_of_prompts_are_sent_as_they_are(tmp_path):
    lines, objects = tmp_path / "p.txt", tmp_path / "p.jsonl"
    lines.write_text("one two\n\nthree\nfour\n")
    objects.write_text('{"prompt": "five six", "output_len": 3}\n{"prompt_token_ids": [7, 8, 9]}\n')
    text = custom(CustomOptions(custom_output_len=11), lines)
    assert written(text(Selection(2, 0, 1)), None) == written(text(Selection(2, 0, 5)), None)
    assert [(r.prompt, r.prompt_len, r.output_len) for r in written(text(Selection(2, 0, 1)), None)] == [
        ("one two", None, 11),
        ("three", None, 11),
    ]
    assert [r.prompt for r in written(text(Selection(1, 0, 0)), None)] == ["four"]  # the warm-up takes the last ones
    both = custom(CustomOptions(), objects)(Selection(None, 0, 1))
    assert [(r.prompt, r.prompt_len, r.output_len) for r in written(both, Pieces(extra=1))] == [
        ("five six", 3, 3),
        ([7, 8, 9], 3, 256),
    ]


def test_conversations_give_their_first_turn_and_the_length_of_its_answer(tmp_path):
    path = tmp_path / "share.json"
    talks = [
        [("human", "a b c"), ("gpt", "d e"), ("human", "f"), ("gpt", "g")],
        [("gpt", "greets"), ("human", "x")],
        [("human", "alone")],
        [("user", "u"), ("assistant", "v w x y")],
    ]
    path.write_text(
        json.dumps([{"conversations": [{"from": who, "value": text} for who, text in talk]} for talk in talks])
    )
    drafts = sharegpt(ShareGPTOptions(), path)(Selection(None, 0, 1))
    assert [(r.prompt, r.output_len) for r in written(drafts, Pieces())] == [("a b c", 2), ("u", 4)]
    with pytest.raises(ConfigError, match="--tokenizer"):
        written(drafts, None)
    given_len = sharegpt(ShareGPTOptions(sharegpt_output_len=9), path)(Selection(None, 0, 1))
    assert [r.output_len for r in written(given_len, None)] == [9, 9]


@pytest.mark.parametrize(
    "text", ["{", "[1]", '[{"conversations": 3}]', '[{"conversations": [{"from": "human"}, {}]}]', "{}"]
)
def test_what_holds_no_conversations_is_refused(tmp_path, text):
    path = tmp_path / "share.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=r"share\.json"):
        sharegpt(ShareGPTOptions(), path)(Selection(None, 0, 1))


def test_the_server_counts_where_no_tokenizer_is_named():
    asked = []

    async def ask(path, body):
        asked.append((path, body["model"], body["add_special_tokens"]))
        return {"tokens": [len(word) for word in body["prompt"].split()]}

    drafts = random_prompts(RandomOptions(random_input_len=5))(Selection(3, 0, 1))
    requests = written(drafts, ServerEncoder(ask, "m", adds_special=False))
    assert [len(request.prompt.split()) for request in requests] == [5, 5, 5]
    assert set(asked) == {("/tokenize", "m", False)}
    assert len(asked) == 3


@pytest.mark.parametrize("answer", [{}, [], {"tokens": None}, {"tokens": ["a"]}, ConfigError("answers 404")])
def test_a_server_that_does_not_count_is_told_of(answer):
    async def ask(path, body):
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    with pytest.raises(ConfigError, match="add --tokenizer"):
        written([RequestSpec(words(0, 3), 1)], ServerEncoder(ask, "m", adds_special=True))


def test_given_texts_need_no_encoder_unless_ids_are_sent():
    drafts = [RequestSpec(Prompt("a b", None), 4)]
    assert written(drafts, None)[0].prompt == "a b"
    with pytest.raises(ConfigError, match="--tokenizer"):
        written(drafts, None, sends_ids=True)
