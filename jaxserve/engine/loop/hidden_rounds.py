"""Host: `HiddenRounds`: how many rounds other rows draw in a step with late rows: those that the device would wait for.

A late row draws one token in a step, once the host has its mask, so rounds that end before the host is ready cost it
nothing, and further ones delay it:

    device | round 1 |  waits           | draw |        the other rows draw one token
    device | round 1 | round 2 | waits  | draw |        two, in the same time
    host   | commit the step before, masks |
"""

TRIAL_STEPS = 64
"""Steps after which one more round is tried, where the last trial has delayed late rows: a device that waits does not
say for how long. As the next step is planned by then, two steps are longer by a round: 3 % of the time at most."""


class HiddenRounds:
    """Follows steps with late rows. max_rounds: upper limit of rounds in a step."""

    def __init__(self, max_rounds: int):
        self._max_rounds = max_rounds
        self._num_rounds = 1
        self._num_hidden, self._num_exposed = 0, 0  # steps of so many rounds, one after the other
        self._pause = 1  # how many hidden ones are to pass before a trial

    @property
    def num_rounds(self) -> int:
        """Rounds for the next step with late rows."""
        return self._num_rounds

    def observe(self, num_rounds: int, *, is_hidden: bool) -> None:
        """Record a step of `num_rounds` rounds. is_hidden: the device had done them when the host was ready."""
        if num_rounds > self._num_rounds:  # planned before the number was lowered
            return
        if not is_hidden:
            self._num_rounds = max(1, num_rounds - 2**self._num_exposed)
            self._num_hidden, self._num_exposed, self._pause = 0, self._num_exposed + 1, TRIAL_STEPS
            return
        self._num_exposed = 0
        self._num_hidden += num_rounds == self._num_rounds  # its rows may need fewer
        if self._num_hidden >= self._pause:
            self._num_rounds = min(self._num_rounds + 1, self._max_rounds)
            self._num_hidden, self._pause = 0, 1
