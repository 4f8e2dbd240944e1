"""The rules of beam search alone: against all possible texts, and against the definition on whole rows."""

from itertools import product

import numpy as np
import pytest

from jaxserve.core.sequence import TokenLogprobs
from jaxserve.engine.tasks.beam_rules import BeamFrontier, BeamRules

STOPPING = (False, True, "never")
PENALTIES = (-1.0, 0.0, 0.6, 1.0, 2.0)
Text = tuple[int, ...]


class Language:
    """Log-probabilities after every text; `grain` makes many of them equal."""

    def __init__(self, seed: int, vocab_size: int, grain: float | None = None):
        self.seed, self.vocab_size, self.grain = seed, vocab_size, grain
        self._known: dict[Text, np.ndarray] = {}

    def after(self, text: Text) -> np.ndarray:
        if text not in self._known:
            self._known[text] = self._after(text)
        return self._known[text]

    def _after(self, text: Text) -> np.ndarray:
        logits = np.random.default_rng([self.seed, *text]).normal(size=self.vocab_size) * 2
        logprobs = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
        return logprobs if self.grain is None else np.round(logprobs / self.grain).astype(np.float32) * self.grain

    def candidates(self, text: Text, count: int) -> TokenLogprobs:
        logprobs = self.after(text)
        ids = np.argsort(-logprobs, kind="stable")[:count]
        return TokenLogprobs(0.0, 1, ids.astype(np.int32), logprobs[ids])

    def total(self, text: Text) -> np.float32:
        return sum((self.after(text[:i])[token] for i, token in enumerate(text)), np.float32(0))


def text_of(node) -> Text:
    return () if node is None else tuple(step.token for step in node.path())


def search(language: Language, rules: BeamRules, num_candidates: int | None = None) -> list[tuple[Text, float]]:
    """The results of the search, given as many candidates a text as it asks for."""
    beams, count = BeamFrontier(rules), num_candidates or rules.num_candidates
    while not beams.is_done:
        before = [text_of(node) for node in beams.running]
        going = beams.advance([language.candidates(text, count) for text in before])
        assert [(*before[parent], token) for parent, token in going] == [text_of(node) for node in beams.running]
    return [(text_of(ended.node), float(ended.score)) for ended in beams.ended]


def defined(language: Language, rules: BeamRules) -> list[tuple[Text, float]]:
    """The search as in transformers' code, over every token of the vocabulary, with Python's lists."""
    width, running, ended = rules.beam_width, [((), np.float32(0))], []
    for length in range(1, rules.max_tokens + 1):
        grown = [
            (-(total + p), i, t) for i, (text, total) in enumerate(running) for t, p in enumerate(language.after(text))
        ]
        best = [((*running[i][0], t), -negative) for negative, i, t in sorted(grown)]
        best = best[: max(2, 1 + len(rules.eos_ids)) * width]
        is_end = [text[-1] in rules.eos_ids or length == rules.max_tokens for text, _ in best]
        for (text, total), ends in list(zip(best, is_end, strict=True))[:width]:
            if ends:
                ended.append((text, total / np.float32(length**rules.length_penalty)))
        ended = sorted(ended, key=lambda e: -e[1])[:width]
        running = [entry for entry, ends in zip(best, is_end, strict=True) if not ends][:width]
        if len(ended) == width and running:
            reach = rules.max_tokens if rules.early_stopping == "never" and rules.length_penalty > 0 else length
            hope = running[0][1] / np.float32(reach**rules.length_penalty)
            if rules.early_stopping is True or hope <= ended[-1][1]:
                break
    return [(text, float(score)) for text, score in ended]


CASES = [
    (seed, BeamRules(width, 7, eos, penalty, stopping))
    for seed, (width, eos, penalty, stopping) in enumerate(
        product((1, 2, 4, 5), ((), (3,), (3, 0)), PENALTIES, STOPPING)
    )
]


@pytest.mark.parametrize("grain", [None, 0.5])
def test_candidates_suffice_for_what_is_defined_over_the_whole_vocabulary(grain):
    for seed, rules in CASES:
        language = Language(seed, 23, grain)
        assert search(language, rules) == defined(language, rules), rules


def test_fewer_candidates_would_not_suffice():
    few = [search(Language(seed, 23), rules, num_candidates=1) for seed, rules in CASES]
    whole = [defined(Language(seed, 23), rules) for seed, rules in CASES]
    assert few != whole


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("eos_ids", [(), (1,)])
def test_a_search_as_wide_as_the_language_finds_the_best_of_all_texts(penalty, eos_ids):
    """With all texts running, only the scores decide; a narrow search misses some of them."""
    num_missed = 0
    for seed in range(8):
        language = Language(seed, 3)
        texts = [
            text
            for length in range(1, 5)
            for text in product(range(3), repeat=length)
            if not set(text[:-1]) & set(eos_ids) and (length == 4 or text[-1] in eos_ids)
        ]
        best = sorted(texts, key=lambda text: -language.total(text) / len(text) ** penalty)
        rules = BeamRules(81, 4, eos_ids, penalty, "never")
        assert [text for text, _ in search(language, rules)] == best[:81]
        narrow = search(language, BeamRules(2, 4, eos_ids, penalty, "never"))
        num_missed += [text for text, _ in narrow] != best[:2]
    assert num_missed > 0


def test_with_one_beam_and_no_penalty_the_likeliest_token_is_taken_until_one_ends():
    for seed, stopping in product(range(20), STOPPING):
        language, text = Language(seed, 9), ()
        while len(text) < 7 and text[-1:] != (3,):
            text = (*text, int(np.argmax(language.after(text))))
        ((found, score),) = search(language, BeamRules(1, 7, (3,), 0.0, stopping))
        assert (found, score) == (text, language.total(text))


def test_every_rule_for_the_end_makes_a_difference():
    found = {}
    for stopping in STOPPING:
        found[stopping] = [search(Language(seed, 6), BeamRules(2, 12, (3,), 1.0, stopping)) for seed in range(30)]
    assert found[True] != found[False] != found["never"]
    for narrow, wide in ((True, False), (False, "never")):  # a longer search never returns worse texts
        assert all(a[-1][1] <= b[-1][1] for a, b in zip(found[narrow], found[wide], strict=True))
