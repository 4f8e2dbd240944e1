"""Host: `AdapterLayout`: how an adapter's matrices (LoRA, Hu et al., arXiv 2106.09685) lie in pages of the KV pool.

    y = x · weightᵀ + (x · aᵀ) · bᵀ         a [rank, in]    b [out, rank], the adapter's scale multiplied in

A *site* is one of the model's products that adapters add to. Its *parts* are matrices of the model that are stored as
one: queries, keys and values. A *rank block* is RANKS rows of each part's a and columns of each part's b; an adapter of
rank 20 has three, the last one filled up with zeros. So all adapters are lists of equal things, whatever their ranks.

    a page of one layer     [K, page, W2], read as K · page rows of W2 numbers
    a rank block of a site  rows 0-7      inputs 0 .. W2 of a, of each rank          of part 0
                            rows 8-15     inputs W2 .. 2·W2                          …
                            …
                            next 8 rows   outputs 0 .. W2 of b, of each rank         of part 0, then of part 1, …

It begins with a page, and ends with zeros. Of several devices each has its part of the KV heads, hence of each page:
there lie its own inputs or outputs. (One pool for KV and adapters: Sheng et al., "S-LoRA: Serving Thousands of
Concurrent LoRA Adapters", section 5.)
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

RANKS = 8  # of a block: rows of a tile of float32 on TPU, and the narrowest operand of a wgmma


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix of the model, [num_outputs, num_inputs], of one device. first_a, first_b: rows of a rank block at
    which its inputs and outputs begin."""

    name: str
    num_inputs: int
    num_outputs: int
    first_a: int
    first_b: int


@dataclass(frozen=True)
class Site:
    """A product of the model. parts: in the order of their outputs. width: W2. num_pages: of a rank block.
    divides_inputs: devices have parts of the inputs, not of the outputs."""

    name: str
    parts: tuple[Part, ...]
    width: int
    num_pages: int
    first_page: int
    divides_inputs: bool

    @property
    def pages(self) -> slice:
        """Of a rank block's pages those of this site."""
        return slice(self.first_page, self.first_page + self.num_pages)


@dataclass(frozen=True)
class SiteShape:
    """A site before it is laid out: (name, inputs, outputs) of each part, on one device."""

    name: str
    parts: tuple[tuple[str, int, int], ...]
    divides_inputs: bool


@dataclass(frozen=True)
class AdapterLayout:
    """rows_per_page: K · page of one device. width: W2. max_rank: of an adapter. num_places: adapters on the device."""

    shapes: tuple[SiteShape, ...]
    rows_per_page: int
    width: int
    max_rank: int
    num_places: int

    @cached_property
    def sites(self) -> dict[str, Site]:
        """By name."""
        sites, first_page = dict[str, Site](), 0
        for shape in self.shapes:
            sizes = [num_inputs for _, num_inputs, _ in shape.parts] + [
                num_outputs for _, _, num_outputs in shape.parts
            ]
            *firsts, num_rows = accumulate(map(self._rows, sizes), initial=0)
            count = len(shape.parts)
            parts = tuple(map(Part, *zip(*shape.parts, strict=True), firsts[:count], firsts[count:]))
            num_pages = -(-num_rows // self.rows_per_page)
            sites[shape.name] = Site(shape.name, parts, self.width, num_pages, first_page, shape.divides_inputs)
            first_page += num_pages
        return sites

    @property
    def num_pages(self) -> int:
        """Of a rank block of one KV group, if it has all sites."""
        return sum(site.num_pages for site in self.sites.values())

    @property
    def max_blocks(self) -> int:
        """Rank blocks of the highest rank."""
        return -(-self.max_rank // RANKS)

    @property
    def max_pages(self) -> int:
        """Of an adapter of the highest rank, of one KV group."""
        return self.max_blocks * self.num_pages

    def _rows(self, size: int) -> int:
        return -(-size // self.width) * RANKS
