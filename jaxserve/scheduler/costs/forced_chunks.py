"""Host: `ForcedChunks`: whether a row computes its forced tokens in one chunk (jump-forward), or one in each step.

    pending  me  ":"        one chunk: the next step of all rows runs in a mixed bucket, and takes longer
                            one a step: a decode bucket, as if each were drawn, until the last, which draws what follows

A chunk saves its row steps, and delays all other rows by what a mixed bucket takes longer. Where weights take all the
time, that is little; where operations do, a chunk saves nothing: 64 rows of SmolLM2 on two cores decoded JSON at a
third of the speed of other text when forced tokens were always chunks.
"""

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.costs.pass_times import TRIAL_SHARE, PassTimes

MOST_DELAY = 1.1
"""Of a step with chunks over one without, where it has rows without a grammar, which gain nothing by them."""


class ForcedChunks:
    """Compares steps with chunks of forced tokens, and no other chunks, with the decode steps before them."""

    def __init__(self) -> None:
        self._times = PassTimes()
        self._chosen = dict[int, tuple[Bucket, Bucket]]()  # both buckets, by the number of a step with chunks in flight
        self._since_trial = 0  # steps

    def choose(
        self, step_id: int, decode: Bucket, mixed: Bucket, *, num_rows: int, num_saved: int, has_others: bool
    ) -> bool:
        """Whether the step has chunks. decode, mixed: its bucket without them, and with them. num_saved: the tokens
        that it computes more. has_others: some of its rows have no grammar. Decode steps are measured first."""
        self._since_trial += 1
        if not self._times.is_known(decode):
            return False
        (slowdown,) = self._times.slowdowns(decode, [mixed])
        most = 1 + num_saved / num_rows
        if slowdown > (min(most, MOST_DELAY) if has_others else most):
            if self._since_trial * TRIAL_SHARE < slowdown - 1:
                return False
            self._since_trial = 0
        self._chosen[step_id] = decode, mixed
        return True

    def observe(self, plan: StepPlan, num_rounds: int, device_s: float) -> None:
        """Record a step of `num_rounds` rounds that occupied the device for `device_s` seconds; several say nothing of
        one, nor do none, where all rows had ended before."""
        decode, bucket = self._chosen.pop(plan.step_id, (None, plan.bucket))
        if plan.bucket.only_decodes:  # also where chunks were chosen, and found no pages
            decode, bucket = None, plan.bucket
        if num_rounds == 1 and (decode is not None or (bucket.is_decode and len(plan.late_rows))):
            self._times.observe(bucket, device_s, decode)
