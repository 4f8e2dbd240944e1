"""Host: `HiddenRounds`: how many rounds other rows draw in a step with late rows: those that the device would wait for.

A late row draws one token in a step, once the host has its mask, so rounds that end before the host is ready cost it
nothing, and further ones delay it:

    device | round 1 |  waits           | draw |        the other rows draw one token
    device | round 1 | round 2 | waits  | draw |        two, in the same time
    host   | commit the step before, masks |
"""

MOST_WAIT = 0.1  # of a step, in which the host waits for the device
TRIAL_STEPS = 32
"""Steps without such a wait after which one more round is tried, since a device that waits does not say for how long.
One that is too much delays late rows by less than its own time: 3 % of theirs, where a step has one round."""


class HiddenRounds:
    """Follows steps with late rows. max_rounds: upper limit of rounds in a step."""

    def __init__(self, max_rounds: int):
        self._max_rounds = max_rounds
        self._num_rounds = 1
        self._num_hidden, self._pause = 0, 1  # steps since the last change, and how many are to pass before a trial

    @property
    def num_rounds(self) -> int:
        """Rounds for the next step with late rows."""
        return self._num_rounds

    def observe(self, num_rounds: int, step_s: float, waited_s: float) -> None:
        """Record a step that began before the one before it was collected, and was collected `step_s` seconds after it;
        the host waited for it during `waited_s` of these."""
        if waited_s > MOST_WAIT * step_s:
            fitting = int(num_rounds * (1 - waited_s / step_s))
            self._num_rounds = max(1, min(self._num_rounds, fitting))
            self._num_hidden, self._pause = 0, TRIAL_STEPS
            return
        self._num_hidden += 1
        if self._num_hidden >= self._pause and num_rounds >= self._num_rounds:
            self._num_rounds = min(self._num_rounds + 1, self._max_rounds)
            self._num_hidden, self._pause = 0, 1
