"""Expressions match the names that Python's `re` says, and cannot take long."""

import random
import re

import pytest

from checkpoints.adapters.name_patterns import NamePatterns
from checkpoints.errors import CheckpointError

NAMES = ["a", "ab.c", "abab", "q_proj", "x.q_proj", "layers.10.k", "a.b-c", "0", "aaaaaaab", "A]b^", "é"]
ATOMS = r"a b c . \. \d \D \w \W \s [ab] [^a] [a-c_] []a] [^]b] [\d.-] [^\W_] q_proj ^ $ \b \B - \- \A \Z é".split()
QUANTIFIERS = "* + ? {2} {1,3} {0,2}? {1,} *? +? ??".split()
LAYERS = [f"model.layers.{layer}.{name}" for layer in range(80) for name in ("self_attn.q_proj", "mlp.down_proj")]
UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|down_proj).*?)|"
    r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|v_proj)))"
)


def expression(rng: random.Random, depth: int, num_repeats: int = 2) -> str:
    """Nested repeats are few: Python's own matcher would not come back."""
    kind = rng.random() if depth else 0
    if kind < 0.3:
        return rng.choice(ATOMS)
    inner = [expression(rng, depth - 1, num_repeats - (kind >= 0.7)) for _ in range(2)]
    if kind < 0.55:
        return "".join(inner)
    if kind < 0.7 or not num_repeats:
        return f"({rng.choice(['', '?:'])}{'|'.join(inner)})"
    return f"(?:{inner[0]}){rng.choice(QUANTIFIERS)}"


def test_random_expressions_match_as_in_python():
    rng, num_matched = random.Random(0), 0
    patterns = NamePatterns(NAMES)
    for _ in range(1500):
        pattern = expression(rng, 4)
        expected = {name for name in NAMES if re.fullmatch(pattern, name)}
        assert patterns.matching(pattern) == expected, pattern
        num_matched += bool(expected)
    assert num_matched > 500


def test_an_expression_of_published_adapters():
    expected = {name for name in LAYERS if re.fullmatch(UNSLOTH, name)}
    assert len(expected) == 80
    assert NamePatterns(LAYERS).matching(UNSLOTH) == expected


@pytest.mark.parametrize("pattern", ["(((.*)*)*)*J", "(.*.*.*.*.*.*.*.*.*.*)*J", "(?:(?:.{0,999}){0,999}){0,999}J"])
def test_what_python_does_not_finish_is_matched(pattern):
    assert NamePatterns(LAYERS).matching(pattern) == frozenset()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?:(?:^{9999}){9999}){9999}", "take too long"),
        ("a" * 5000, "more than 4000 characters"),
        ("(" * 30 + "a" + ")" * 30, "more than 20 groups"),
        ("(?=a)a", "a group other than"),
        ("(?i)a", "a group other than"),
        (r"(a)\1", r"has \\1, which is not supported"),
        ("a++", "possessive"),
        ("*a", "repeats nothing"),
        ("(a", "has a \\( without \\)"),
        ("a)", "has a \\) without \\("),
        ("[b-a]", "a bad range"),
        ("[a", "ends too early"),
        ("a\\", "ends too early"),
    ],
)
def test_other_expressions_are_refused(pattern, reason):
    with pytest.raises(CheckpointError, match=reason):
        NamePatterns(LAYERS).matching(pattern)
