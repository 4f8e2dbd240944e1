"""Every step within the limits fits a bucket of the list that warm-up compiles."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxserve.core.buckets import MAX_HEADS, SPARED_TOKENS, Bucket, make_buckets, read_buckets, with_rounds, with_verify
from jaxserve.core.errors import ConfigError


@given(st.integers(1, 300), st.integers(1, 4096), st.integers(1, 5000), st.data())
def test_every_step_within_the_limits_has_a_bucket(max_rows, max_tokens, max_columns, data):
    max_tokens = max(max_tokens, max_rows)
    buckets = make_buckets(max_rows, max_tokens, max_columns)
    rows = data.draw(st.integers(1, max_rows))
    is_decode = data.draw(st.booleans())
    tokens = rows if is_decode else data.draw(st.integers(rows, max_tokens))
    columns = data.draw(st.integers(1, max_columns))
    bucket = buckets.fit(tokens, rows, columns, is_decode=is_decode)
    assert bucket in buckets.all()
    assert bucket.num_tokens >= tokens
    assert bucket.num_rows >= rows
    assert bucket.num_columns >= columns
    assert bucket.is_decode == is_decode


def test_buckets_differ_and_their_names_do_too():
    every = make_buckets(2, 2048, 2048, min_rows=8).all()
    assert len(set(every)) == len({str(b) for b in every}) == len(every)
    assert all(bucket.num_rows >= 8 for bucket in every)


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_decode_step_pads_to_less_than_twice_its_rows_from_eight_on(max_rows, rows):
    bucket = make_buckets(max_rows, 2048, 64).fit(min(rows, max_rows), min(rows, max_rows), 1, is_decode=True)
    assert bucket.num_rows < 2 * max(min(rows, max_rows), 5)


def test_the_default_limits_make_few_buckets():
    assert len(make_buckets(32, 512, 512, min_rows=2, first_rows=2).all()) <= 13  # on CPU
    for num_columns in (512, 2048):  # a context of 32,768 in pages of 64, and of 131,072
        assert len(make_buckets(256, 2048, num_columns, min_rows=8).all()) <= 25


def test_few_rows_have_buckets_of_their_own_on_a_cpu():
    assert str(make_buckets(8, 32, 64, min_rows=2, first_rows=2)) == "2 4 8 32x8"
    assert str(make_buckets(1, 32, 64, min_rows=2, first_rows=2)) == "2 32x2"


@pytest.mark.parametrize("max_rows", [64, 256])
def test_a_step_in_the_upper_half_pads_to_at_most_an_eighth_of_the_largest(max_rows):
    buckets = make_buckets(max_rows, 2048, 512)
    for rows in range(max_rows // 2, max_rows + 1):
        assert buckets.fit(rows, rows, 1, is_decode=True).num_rows - rows < max_rows // 8


@given(st.integers(1, 300), st.integers(1, 4096), st.sampled_from([64, 2048]))
def test_the_printed_list_is_parsed_to_the_same_buckets(max_rows, max_tokens, max_columns):
    sizes = max_rows, max(max_rows, max_tokens), max_columns
    assert read_buckets(str(make_buckets(*sizes)), *sizes) == make_buckets(*sizes)


def test_a_list_may_be_written_by_hand():
    buckets = read_buckets("16, 4 64x4 600x16", 16, 512, 64)
    assert str(buckets) == "4 16 64x4 600x16"
    assert buckets.fit(65, 3, 1, is_decode=False) == Bucket(600, 16, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8 64x8", "add 16, the rows of the largest decode step"),
        ("16 64x16 512x8", "add 512x16, tokens and rows of the largest step"),
        ("16 512x16 sixteen", "'sixteen' is neither a number of rows nor TOKENSxROWS"),
        ("16 512x16 8x16", "8x16 must have more tokens than rows"),
        ("", "add 16"),
    ],
)
def test_a_list_without_a_bucket_for_every_step_is_refused(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_buckets(text, 16, 512, 64)
    assert caught.value.param == "buckets"


@given(st.integers(1, 300), st.integers(1, 63), st.integers(1, 100), st.integers(1, 300))
@example(max_rows=16, max_drafts=2, max_columns=1, rows=1)
def test_verify_buckets_of_every_width_that_has_room(max_rows, max_drafts, max_columns, rows):
    buckets = with_verify(make_buckets(max_rows, 512, max_columns), max_drafts)
    found = buckets.fit_verify(rows, max_columns)
    half, largest = max_drafts // 2, min(buckets.decode[-1].num_rows, MAX_HEADS // (1 + max_drafts))
    assert all(b.num_rows >= rows and b.num_tokens == b.num_rows * (1 + b.max_drafts) <= MAX_HEADS for b in found)
    assert [b.max_drafts for b in found] in ([], [half], [max_drafts], [half, max_drafts])
    if rows <= largest // 2:
        assert found[-1].max_drafts == max_drafts
        assert (found[0].max_drafts == half > 0) == (
            half > 0 and found[-1].num_rows * (max_drafts - half) >= SPARED_TOKENS
        )
    assert len(buckets.verify) <= 12


@given(st.integers(0, 9), st.integers(1, 600))
@example(first=6, max_drafts=63)
def test_verify_buckets_of_engines_whose_least_step_is_large(first, max_drafts):
    """They have no more positions than a pass may sample, whatever the rows of the smallest decode bucket."""
    rows = 2**first
    buckets = with_verify(read_buckets(f"{rows} 1024x{rows}", rows, 1024, 10), max_drafts)
    assert buckets.verify
    assert all(b.num_tokens <= max(MAX_HEADS, 1 + b.max_drafts) for b in buckets.verify)
    assert min(b.num_rows for b in buckets.verify) == min(rows, max(1, MAX_HEADS // (1 + max_drafts)))


def test_no_verify_bucket_holds_more_columns_than_were_compiled():
    assert with_verify(make_buckets(8, 64, 10), 7).fit_verify(1, 11) == []


def test_programs_whose_tables_have_other_widths_have_other_names():
    """Those of mixed buckets, too: drafts may be in flight when a chunk is planned."""
    plain = make_buckets(8, 64, 20)
    engines = [plain, *(with_rounds(with_verify(plain, drafts), rounds) for drafts in (2, 5) for rounds in (1, 16))]
    for of_kind in (lambda buckets: buckets.decode, lambda buckets: buckets.mixed):
        spans = {(str(bucket), bucket.max_row_span) for buckets in engines for bucket in of_kind(buckets)}
        assert len({name for name, _ in spans}) == len(spans)
        assert len({span for _, span in spans}) > 2
