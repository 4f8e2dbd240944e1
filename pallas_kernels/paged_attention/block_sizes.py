"""Device: `BlockSizes`: how much of a batch a back end of paged attention handles at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockSizes:
    """How much a back end handles at once. Results depend on it by rounding only."""

    positions: int = 128
    """KV positions of one step of the online softmax; a multiple of the page size."""
    rows: int = 8
    """Decode rows handled together."""
    queries: int = 64
    """Query tokens of one prefill tile, all of one sequence."""

    def __post_init__(self) -> None:
        for name in ("positions", "rows", "queries"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"BlockSizes: {name}={size} must be a power of two")

    def pages(self, page_size: int) -> int:
        """Pages of one step. Raises ValueError when the page size does not divide `positions`."""
        if self.positions % page_size:
            raise ValueError(
                f"BlockSizes: positions={self.positions} must be a multiple of the page size {page_size}; "
                f"pass block=BlockSizes(positions={page_size}) or another multiple"
            )
        return self.positions // page_size
