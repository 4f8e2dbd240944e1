"""Workloads are the same for the same seed, have the specified lengths, and refuse invalid options."""

import json

import pytest

from jaxserve.bench.lengths import LengthRange
from jaxserve.bench.offline.workload import RandomWorkload, Workload, read_workload
from jaxserve.core.errors import RequestError

RAGGED = LengthRange(3, 9)


def ragged(seed: int = 0) -> RandomWorkload:
    return RandomWorkload(200, RAGGED, RAGGED, vocab_size=50, seed=seed)


def lens(workload: Workload) -> tuple[list[int], list[int]]:
    return [len(prompt) for prompt in workload.prompts], workload.output_lens


def test_a_seed_fixes_lengths_and_tokens():
    assert ragged().of_pass(1) == ragged().of_pass(1)
    assert lens(ragged(1).of_pass(1)) != lens(ragged().of_pass(1))


def test_passes_differ_in_tokens_and_not_in_lengths():
    first, second = ragged().of_pass(0), ragged().of_pass(1)
    assert lens(first) == lens(second)
    assert first.prompts != second.prompts


def test_lengths_cover_the_range_with_both_ends():
    for drawn in lens(ragged().of_pass(0)):
        assert set(drawn) == set(range(3, 10))
    assert len(set(ragged().of_pass(0).output_lens[:20])) > 3


def test_tokens_are_in_the_vocabulary():
    ids = {token for prompt in ragged().of_pass(0).prompts for token in prompt}
    assert ids == set(range(50))


@pytest.mark.parametrize(("text", "low", "high"), [("128", 128, 128), ("16:256", 16, 256), ("5:5", 5, 5)])
def test_ranges_are_read_as_they_are_written(text, low, high):
    assert LengthRange.parse(text) == LengthRange(low, high)
    assert LengthRange.parse(str(LengthRange.parse(text))) == LengthRange(low, high)


@pytest.mark.parametrize("text", ["", "0", "9:3", "a:b", "-1", "1:2:3", "1.5", "٣"])
def test_other_texts_are_no_ranges(text):
    with pytest.raises(ValueError, match="16:256"):
        LengthRange.parse(text)


def test_every_request_is_greedy_and_exactly_as_long_as_asked():
    params = Workload([[1], [2]], [4, 7]).params()
    assert [(p.max_tokens, p.ignore_eos, p.is_greedy) for p in params] == [(4, True, True), (7, True, True)]


class Letters:
    """A tokenizer of single letters."""

    def encode_batch(self, texts):
        return [[ord(letter) for letter in text] for text in texts]


def read(path, text: str, **options) -> Workload:
    path.write_text(text)
    options = {"num_prompts": None, "output_len": None, "seed": 0} | options
    return read_workload(path, options.pop("tokenizer", Letters()), **options).of_pass(0)


def test_a_text_file_has_a_prompt_a_line(tmp_path):
    workload = read(tmp_path / "prompts.txt", "ab\n\nc\nd\n", num_prompts=2, output_len=LengthRange(5, 5))
    assert workload == Workload([[97, 98], [99]], [5, 5])


def test_jsonl_gives_text_or_tokens_and_lengths_or_draws_them(tmp_path):
    entries = [{"prompt": "ab", "output_len": 3}, {"prompt_token_ids": [7, 8, 9]}, {"prompt": "c", "output_len": 4}]
    text = "\n".join(map(json.dumps, entries))
    workload = read(tmp_path / "p.jsonl", text, output_len=LengthRange(50, 60))
    assert workload.prompts == [[97, 98], [7, 8, 9], [99]]
    assert workload.output_lens[::2] == [3, 4]
    assert 50 <= workload.output_lens[1] <= 60


MISTAKES = {
    "too few": ("p.txt", "a\nb\n", {"num_prompts": 3}, "--num-prompts=3"),
    "empty": ("p.txt", "\n", {}, "0 prompts"),
    "not JSON": ("p.jsonl", "text", {}, "prompt 0 is not JSON"),
    "unknown key": ("p.jsonl", '{"prompt": "a", "max_tokens": 3}', {}, "max_tokens"),
    "no length": ("p.jsonl", '{"prompt": "a", "output_len": 0}', {}, "output_len=0"),
    "two lengths": ("p.jsonl", '{"prompt": "a", "output_len": 2}', {"output_len": RAGGED}, "--output-len"),
    "text without tokenizer": ("p.txt", "a\n", {"tokenizer": None}, "--tokenizer"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, name):
    file, text, options, message = MISTAKES[name]
    with pytest.raises(RequestError, match=message):
        read(tmp_path / file, text, **options)


def test_requests_that_do_not_fit_the_context_are_named():
    workload = Workload([[1] * 4, [1] * 6], [6, 6])
    workload.check_fits(12)
    with pytest.raises(RequestError, match=r"prompt 1 has 6 tokens and 6 to generate.*--max-model-len"):
        workload.check_fits(11)
