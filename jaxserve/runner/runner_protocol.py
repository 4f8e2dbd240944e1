"""Host: `StepRunner`, the interface through which the engine runs its plans."""

from typing import Any, Protocol

from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import LateDraw, StepPlan


class StepRunner(Protocol):
    """Runs steps in the order of their submission; two may be in flight."""

    def submit(self, plan: StepPlan) -> Any:
        """Start a step and return a ticket at once. The plan's arrays are not read after the return."""
        ...

    def late_drafts(self, ticket: Any) -> list[list[int]]:
        """Wait for the drafts of a step's late rows, in the order of `StepPlan.late_rows`; before `draw`, if the plan
        has such."""
        ...

    def has_run(self, ticket: Any) -> bool:
        """Whether the device has done a step's forward passes, before `draw`; does not wait."""
        ...

    def draw(self, ticket: Any, late: LateDraw) -> Any:
        """Draw the tokens of a step's late rows; once, before it is collected and before the next step is submitted.
        Returns the ticket from now on."""
        ...

    def collect(self, ticket: Any) -> StepOutcome:
        """Wait for a step's outcome; tickets must be passed in the order of submission."""
        ...
