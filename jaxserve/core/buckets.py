"""Host: buckets, the finite list of compiled shapes, and which of them a step uses."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A compiled shape: `num_tokens` T, `num_rows` S, `num_columns` W (page-table columns of unwindowed groups).

    T == S means decode only: one token a row.
    """

    num_tokens: int
    num_rows: int
    num_columns: int

    @property
    def is_decode(self) -> bool:
        return self.num_tokens == self.num_rows

    def __str__(self) -> str:
        kind = "decode" if self.is_decode else "mixed"
        return f"{kind}[tokens={self.num_tokens}, rows={self.num_rows}, page_columns={self.num_columns}]"


@dataclass(frozen=True, slots=True)
class Buckets:
    """All buckets of an engine: every decode row count, and every pair (tokens, rows) with more tokens than rows."""

    tokens: tuple[int, ...]
    rows: tuple[int, ...]
    decode_rows: tuple[int, ...]
    columns: tuple[int, ...]

    def fit(self, num_tokens: int, num_rows: int, num_columns: int, *, is_decode: bool) -> Bucket:
        """The smallest bucket that holds a step; `is_decode` says that every row has exactly one token."""
        columns = self.columns[bisect_left(self.columns, num_columns)]
        if is_decode:
            rows = self.decode_rows[bisect_left(self.decode_rows, num_rows)]
            return Bucket(rows, rows, columns)
        rows = self.rows[bisect_left(self.rows, num_rows)]
        # A mixed bucket has more tokens than rows: T == S is read as decode only.
        return Bucket(self.tokens[bisect_left(self.tokens, max(num_tokens, rows + 1))], rows, columns)

    def all(self) -> list[Bucket]:
        decode = [Bucket(s, s, w) for w in self.columns for s in self.decode_rows]
        mixed = [Bucket(t, s, w) for w in self.columns for s in self.rows for t in self.tokens if t > s]
        return decode + mixed


def make_buckets(max_num_seqs: int, max_num_batched_tokens: int, max_columns: int, min_rows: int = 1) -> Buckets:
    """Buckets for the limits of a workload.

    Rows of decode buckets double from 8, the last being `max_num_seqs` or `min_rows`: most steps decode, and a padded
    row costs a whole forward pass of a token. Rows of mixed buckets grow by 4, for there only the head and the sampler
    pay, and so do tokens, from 32: a bucket costs a compilation. One table width, and a narrow one when the widest
    table row is over 512 pages, since only the transfer grows with it.
    """
    max_rows = max(min_rows, max_num_seqs)
    rows, decode_rows = _ladder(8, max_rows, 4), _ladder(8, max_rows, 2)
    tokens = _ladder(32, max(max_num_batched_tokens, rows[-1] + 1), 4)
    columns = (max_columns // 8, max_columns) if max_columns > 512 else (max_columns,)
    return Buckets(tokens, rows, decode_rows, columns)


def _ladder(start: int, end: int, factor: int) -> tuple[int, ...]:
    steps: list[int] = []
    value = start
    while value < end:
        steps.append(value)
        value *= factor
    return (*steps, end)
