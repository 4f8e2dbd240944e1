"""Host: `MultiStepBudget`: how many tokens a row may draw in one step: as many as fit in 50 ms, if none draws late."""

from jaxserve.engine.loop.hidden_rounds import HiddenRounds

MAX_STEP_S = 0.05  # a new request waits for two steps at most, the one in flight and the one planned


class MultiStepBudget:
    """Follows how long a round takes. While the queue is empty, the rows of one step resemble those of the next.

    max_rounds: upper limit of rounds in a step. max_hidden_rounds: that of steps with late rows (`hidden`).
    """

    def __init__(self, max_rounds: int, max_hidden_rounds: int = 1):
        self._max_rounds, self.hidden = max_rounds, HiddenRounds(max_hidden_rounds)
        self._round_s = MAX_STEP_S  # unknown yet: one round

    @property
    def num_rounds(self) -> int:
        """Rounds for the next step, if it has no late rows."""
        return max(1, min(self._max_rounds, int(MAX_STEP_S / self._round_s)))

    def observe(self, num_rounds: int, device_s: float) -> None:
        """Record a step that occupied the device for `device_s` seconds. One whose rows had all ended before has no
        round, and says nothing."""
        if num_rounds:
            self._round_s = max(device_s / num_rounds, 1e-6)
