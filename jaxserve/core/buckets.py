"""Host: `Buckets`: the finite list of compiled shapes, and which of them a step uses."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jaxserve.core.errors import ConfigError

NARROW_COLUMNS = 512  # up to this width of page tables, one width is compiled
MAX_ROUNDS = 16  # forward passes of a step of a decode or verify bucket, one after the other
SPARED_TOKENS = 16  # fewer in a pass save little: weights are read in any case
MAX_HEADS = 512  # sampled positions of a verify bucket: their logits take 263 MB with Llama 3's vocabulary


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A compiled shape: `num_tokens` T, `num_rows` S, `num_columns` W (page-table columns of groups without a window).

    T == S means decode only: one token per row, in up to `max_rounds` rounds. max_drafts: draft tokens that a row of a
    verify bucket computes after its own token in each of its rounds, T == S · (1 + max_drafts); 0 in other buckets.
    most_rounds: forward passes of one step, if all its rows decode. most_row_drafts: the most drafts that a row may
    have in one round, in any bucket of the engine: they may be in flight when a step of this bucket is planned.
    """

    num_tokens: int
    num_rows: int
    num_columns: int
    max_drafts: int = 0
    most_rounds: int = MAX_ROUNDS
    most_row_drafts: int = 0

    @property
    def is_decode(self) -> bool:
        return self.num_tokens == self.num_rows

    @property
    def is_verify(self) -> bool:
        return self.max_drafts > 0

    @property
    def only_decodes(self) -> bool:
        """Whether all rows decode, with or without drafts: in `max_rounds` rounds, without chunks of prompts."""
        return self.is_decode or self.is_verify

    @property
    def max_rounds(self) -> int:
        """Forward passes of one step."""
        return self.most_rounds if self.only_decodes else 1

    @property
    def num_heads(self) -> int:
        """Sampled positions of a round: those whose logits are computed."""
        return self.num_tokens if self.is_verify else self.num_rows

    @property
    def max_row_tokens(self) -> int:
        """Tokens that one row can compute."""
        return self.max_rounds * (1 + self.max_drafts) if self.only_decodes else self.num_tokens

    @property
    def max_row_span(self) -> int:
        """Positions of a row from the least at which its step may begin to its end: how many drafts of the step before
        count is not known until they are verified."""
        drafted = self.most_rounds * (1 + self.most_row_drafts) if self.most_row_drafts else 0
        return self.max_row_tokens + max(self.max_row_tokens, drafted)

    def __str__(self) -> str:
        """The name of its program, which depends on all of this."""
        kind = "decode" if self.is_decode else "verify" if self.is_verify else "mixed"
        rounds = f", rounds={self.max_rounds}" if self.only_decodes and self.max_rounds != MAX_ROUNDS else ""
        span = f", row_span={self.max_row_span}" if self.most_row_drafts else ""  # in it go tables of windowed groups
        return f"{kind}[tokens={self.num_tokens}, rows={self.num_rows}, page_columns={self.num_columns}{rounds}{span}]"


@dataclass(frozen=True, slots=True)
class Buckets:
    """All buckets of an engine: decode buckets, mixed ones, whose rows may be longer, and verify buckets, with drafts;
    each in the order of cost."""

    decode: tuple[Bucket, ...]
    mixed: tuple[Bucket, ...]
    verify: tuple[Bucket, ...] = ()

    def fit(self, num_tokens: int, num_rows: int, num_columns: int, *, is_decode: bool) -> Bucket:
        """The smallest bucket that holds a step. is_decode: every row has exactly one token."""
        for bucket in self.decode if is_decode else self.mixed:
            if bucket.num_tokens >= num_tokens and bucket.num_rows >= num_rows and bucket.num_columns >= num_columns:
                return bucket
        raise ValueError(f"no bucket holds {num_tokens} tokens in {num_rows} rows of {num_columns} pages")

    def fit_verify(self, num_rows: int, num_columns: int) -> list[Bucket]:
        """Of each number of drafts the smallest verify bucket that has room, if any; those of few drafts first.

        One with no fewer tokens than a bucket of more drafts is of no use.
        """
        fitting = [b for b in self.verify if b.num_rows >= num_rows and b.num_columns >= num_columns]
        smallest = sorted({b.max_drafts: b for b in reversed(fitting)}.values(), key=lambda b: b.max_drafts)
        return [
            b for i, b in enumerate(smallest) if all(b.num_tokens < wider.num_tokens for wider in smallest[i + 1 :])
        ]

    @property
    def max_rounds(self) -> int:
        """Rounds of a step in which all rows decode."""
        return self.decode[0].max_rounds

    @property
    def most_drafts(self) -> int:
        """The most drafts of all rows of a round together."""
        return max((bucket.num_tokens - bucket.num_rows for bucket in self.verify), default=0)

    def all(self) -> list[Bucket]:
        return [*self.decode, *self.mixed, *self.verify]

    def __str__(self) -> str:
        """The list in the format of `read_buckets`: rows of decode buckets, then TOKENSxROWS of mixed ones."""
        own = *self.decode, *self.mixed
        words = [str(b.num_rows) if b.is_decode else f"{b.num_tokens}x{b.num_rows}" for b in own]
        return " ".join(dict.fromkeys(words))


def make_buckets(
    max_num_seqs: int, max_num_batched_tokens: int, max_columns: int, *, min_rows: int = 1, first_rows: int = 8
) -> Buckets:
    """Buckets for the limits of a workload.

    Rows of decode buckets double from `first_rows` up to `max_num_seqs` or `min_rows`: most steps decode, and a padded
    row costs a whole forward pass of a token. Rows of mixed buckets grow by a factor of 4, because padding only costs
    the head and the sampler there, and so do tokens, from 32, because each bucket costs a compilation. Pairs with no
    more tokens than rows hold no chunk.
    If decode tables have one width, rows also grow in steps of an eighth of the maximum, and below that to 24, 48, 96,
    ...; and there are mixed buckets of 256 tokens. For 64 requests of 27 to 256 tokens, padding is then 8 % of the rows
    instead of 22 % with 64 at once, and 16 % of the tokens instead of 31 % with 32 at once.
    """
    max_rows = max(min_rows, max_num_seqs)
    rows = ladder(8, max_rows, 4)
    max_tokens = max(max_num_batched_tokens, rows[-1] + 1)
    tokens, decode_rows = {*ladder(32, max_tokens, 4)}, {*ladder(first_rows, max_rows, 2)}
    if max_columns <= NARROW_COLUMNS:
        tokens |= {min(256, max_tokens)}
        step = max(8, 1 << (max_rows // 8 - 1).bit_length())
        decode_rows |= {r for r in (*ladder(24, step, 2), *range(step, max_rows, step)) if r < max_rows}
    return _of_sizes(decode_rows, [(t, r) for t in tokens for r in rows if t > r], max_columns)


def default_rounds(platform: str) -> int:
    """Rounds of a step of decode and verify buckets: one on a GPU, which waits for the host before each, but queues
    whole steps ahead."""
    return 1 if platform == "gpu" else MAX_ROUNDS


def with_rounds(buckets: Buckets, most_rounds: int) -> Buckets:
    """The same, of at most that many rounds."""
    return _changed(buckets, most_rounds=most_rounds)


def _changed(buckets: Buckets, **fields: int) -> Buckets:
    """With these fields in all buckets."""
    kinds = (buckets.decode, buckets.mixed, buckets.verify)
    return Buckets(*(tuple(replace(bucket, **fields) for bucket in kind) for kind in kinds))


def with_verify(buckets: Buckets, max_drafts: int) -> Buckets:
    """The same and verify buckets of that many drafts, and of half as many where a pass then has `SPARED_TOKENS` less.

    Rows double as far as `MAX_HEADS` allow; tables are the widest.
    """
    least, largest = buckets.decode[0].num_rows, buckets.decode[-1]

    def of_width(drafts: int) -> list[Bucket]:
        most = min(largest.num_rows, max(1, MAX_HEADS // (1 + drafts)))
        rows = sorted({min(least, most), *(n for n in ladder(1, most, 2) if n > least)})
        return [Bucket(n * (1 + drafts), n, largest.num_columns, drafts) for n in rows]

    half = max_drafts // 2
    narrow = [b for b in of_width(half) if b.num_rows * (max_drafts - half) >= SPARED_TOKENS] if half else []
    verify = tuple(sorted([*narrow, *of_width(max_drafts)]))
    return _changed(replace(buckets, verify=verify), most_row_drafts=max_drafts)


def read_buckets(text: str, max_num_seqs: int, max_num_batched_tokens: int, max_columns: int) -> Buckets:
    """Parse a list such as "8 32 32x8 512x32": decode buckets of 8 and 32 rows, and mixed ones of 32 tokens in up to 8
    rows and of 512 tokens in up to 32 rows. Raises ConfigError unless every step within the limits fits a bucket."""
    decode_rows = list[int]()
    pairs = list[tuple[int, int]]()
    for word in text.replace(",", " ").split():
        numbers = re.fullmatch(r"([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?", word)
        if numbers is None:
            raise ConfigError(f"buckets: {word!r} is neither a number of rows nor TOKENSxROWS", param="buckets")
        first, second = numbers.groups()
        if second is None:
            decode_rows.append(int(first))
        elif int(first) > int(second):
            pairs.append((int(first), int(second)))
        else:
            raise ConfigError(f"buckets: {word} must have more tokens than rows", param="buckets")
    largest = max(max_num_batched_tokens, max_num_seqs + 1)
    if not any(rows >= max_num_seqs for rows in decode_rows):
        raise ConfigError(f"buckets={text!r}: add {max_num_seqs}, the rows of the largest decode step", param="buckets")
    if not any(t >= largest and r >= max_num_seqs for t, r in pairs):
        word = f"{largest}x{max_num_seqs}"
        raise ConfigError(f"buckets={text!r}: add {word}, tokens and rows of the largest step", param="buckets")
    return _of_sizes(decode_rows, pairs, max_columns)


def _of_sizes(decode_rows: Iterable[int], pairs: Iterable[tuple[int, int]], max_columns: int) -> Buckets:
    """Decode buckets also come with a narrow table if the widest has over 512 pages. Mixed buckets do not: the width
    costs only the transfer, and steps with chunks of prompts are few and long."""
    widths = {max_columns // 8, max_columns} if max_columns > NARROW_COLUMNS else {max_columns}
    decode = sorted(Bucket(r, r, w) for r in set(decode_rows) for w in widths)
    return Buckets(tuple(decode), tuple(sorted(Bucket(t, r, max_columns) for t, r in set(pairs))))


def ladder(start: int, end: int, factor: int) -> tuple[int, ...]:
    """start, start · factor, ..., and `end` as the last."""
    steps: list[int] = []
    value = start
    while value < end:
        steps.append(value)
        value *= factor
    return (*steps, end)
