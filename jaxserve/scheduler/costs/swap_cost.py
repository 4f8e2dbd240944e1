"""Host: `SwapCost`: whether loading a page from host memory is faster than computing it again."""

WEIGHT = 0.2  # of the newest step in the moving average of the time per token


class SwapCost:
    """Moving average of the time to compute a prompt token, compared with the time to load a page.

    page_s: seconds to load a page, measured before the engine serves. Until a prompt has been computed, pages are
    loaded.
    """

    def __init__(self, page_s: float = 0.0):
        self.page_s = page_s
        self._token_s: float | None = None

    def observe(self, num_tokens: int, num_decodes: int, device_s: float) -> None:
        """Record a step that occupied the device for `device_s` seconds.

        num_decodes: how many of its tokens decode. Steps of which at least half do are left out: they say little about
        prompts.
        """
        if num_tokens > 2 * num_decodes:
            token_s = device_s / num_tokens
            before_s = token_s if self._token_s is None else self._token_s
            self._token_s = (1 - WEIGHT) * before_s + WEIGHT * token_s

    def is_load_faster(self, page_size: int) -> bool:
        """Whether to load pages instead of computing their tokens."""
        return self._token_s is None or self.page_s < self._token_s * page_size
