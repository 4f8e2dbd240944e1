"""Host: `SwapCost`, whether pages are sooner loaded from host memory or computed again."""

WEIGHT = 0.2  # of the newest step in what a token takes


class SwapCost:
    """Follows what computing prompts takes. page_s: seconds to load a page, measured before service begins.

    A sequence that was preempted, or that begins like an evicted one, loads its pages if that is sooner. As long as no
    prompt has been computed it does.
    """

    def __init__(self, page_s: float = 0.0):
        self.page_s = page_s
        self._token_s: float | None = None
        self._ended_s = 0.0

    def observe(self, num_tokens: int, num_decodes: int, submitted_s: float, collected_s: float) -> None:
        """A step that had the device from its submission, or from the end of the step before it.

        num_decodes: those of its tokens that were no prompts'. Steps with mostly such tokens tell little of others.
        """
        duration_s = collected_s - max(submitted_s, self._ended_s)
        self._ended_s = collected_s
        if num_tokens > 2 * num_decodes:
            token_s = duration_s / num_tokens
            before_s = token_s if self._token_s is None else self._token_s
            self._token_s = (1 - WEIGHT) * before_s + WEIGHT * token_s

    def is_load_sooner(self, page_size: int) -> bool:
        return self._token_s is None or self.page_s < self._token_s * page_size
