"""`AdapterCase`: a batch whose rows have adapters, of a model's shapes."""

from dataclasses import dataclass

from pallas_kernels.lora_matmul.adapter_layout import RANKS, AdapterLayout, SiteShape


@dataclass(frozen=True)
class AdapterCase:
    """Rows of one token, in turn of each adapter. page: (K, page, W2). streamed_bytes: of adapters, before those of a
    layer are read again."""

    name: str
    sites: tuple[SiteShape, ...]
    page: tuple[int, int, int]
    num_rows: int
    num_adapters: int
    rank: int
    streamed_bytes: int

    @property
    def layout(self) -> AdapterLayout:
        num_heads, page, width = self.page
        return AdapterLayout(self.sites, num_heads * page, width, self.rank, self.num_adapters)

    @property
    def layer_bytes(self) -> int:
        """Of the matrices that the rows need, in a layer."""
        numbers = sum(inputs + outputs for site in self.sites for _, inputs, outputs in site.parts)
        return 2 * min(self.num_adapters, self.num_rows) * self.layout.max_blocks * RANKS * numbers
