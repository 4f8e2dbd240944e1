"""Host: `EarnedPasses`: what drafts have saved lately, by which rows that draft go on while they seem to gain less.

What a batch shows in a few passes varies: of 32 rows of SmolLM2 by 14 %. Where they stop, the next trial may be far, on
two CPU cores 120 passes. So a loss is borne that is smaller than what was gained before; drafts that gain nothing any
more cost as much as they had earned, at most.
"""

MOST_EARNED = 6.0
"""Passes without drafts. Of 32 rows whose texts begin together 4 % of the best static choice's tokens are lost (of 4
passes 5 %, of 0 11 %); one row gains 2 % over that choice (of 4 passes 3 %, of 8 nothing)."""
UPKEEP = 0.02
"""What a pass with drafts costs in any case, so that they end, too, where they take no time."""
LEAST_LEFT = 0.85
"""Of the gain from which on rows draft, what they must gain to go on."""


class EarnedPasses:
    """count: passes without drafts that were saved, or a loss, since the last decode step without drafts."""

    def __init__(self) -> None:
        self.count = 0.0

    @property
    def least_gain(self) -> float:
        """Share of the gain from which on rows draft that suffices now."""
        return LEAST_LEFT if self.count > 0 else 1.0

    def observe(self, num_passes: float, tokens: float, slowdown: float) -> None:
        """Passes with drafts. tokens: by which each advanced a row on average. slowdown: its time over that of a pass
        without."""
        self.count = min(MOST_EARNED, self.count + num_passes * (tokens - slowdown - UPKEEP))

    def forget(self) -> None:
        """Rows decoded without drafts, or are all new."""
        self.count = 0.0
