"""The lines that have a result, in few bytes."""

import random
import sys

import pytest

from jaxserve.batch.done_lines import DoneLines


def test_it_is_a_table_of_digests():
    rng = random.Random(0)
    digests = {number: f"{rng.randrange(1, 1 << 64):016x}" for number in rng.sample(range(1, 2000), 500)}
    done = DoneLines(2000)
    assert not done
    for number, digest in digests.items():
        done.add(number, digest)
        done.add(number, digest)
    assert len(done) == 500
    assert {number: done.digest(number) for number in range(2100) if number in done} == digests


@pytest.mark.parametrize(("number", "digest"), [(0, "1"), (11, "1"), (1 << 60, "1"), (1, "x"), (1, "0"), (1, "1" * 17)])
def test_what_no_line_has_is_refused(number, digest):
    with pytest.raises(ValueError, match=r"no line|invalid literal"):
        DoneLines(10).add(number, digest)


@pytest.mark.parametrize(
    ("lines", "missing"), [((2, 4, 7), None), (range(1, 9), None), ((), 2), ((2, 3, 7), 4), ((4, 7), 2), ((2, 4), 7)]
)
def test_the_first_line_that_is_missing(lines, missing):
    done = DoneLines(10)
    for number in (4, 2, 7):
        done.add(number, "1")
    assert done.first_missing(lines) == missing


def test_a_million_lines_take_eight_megabytes():
    done = DoneLines(1_000_000)
    done.add(1_000_000, "1")
    assert sys.getsizeof(done._digests) < 9e6
