"""Host: `RequestState`, a running request; `SequenceOutput`, one sample of it; `StepUpdate`, what one step changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxserve.core.outputs import RequestMetrics
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.core.token_deltas import NO_TOKEN
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.output_text import OutputText


@dataclass(slots=True, eq=False)
class RequestState:
    """One request under way.

    prompt: the text that was asked, where it was text. detokenizer: None where no text is wanted.
    """

    request: Request
    prompt: str | None
    prompt_ids: list[int]
    samples: "list[SequenceOutput]"
    detokenizer: Detokenizer | None
    metrics: RequestMetrics

    @property
    def sequences(self) -> list[Sequence]:
        return [sample.sequence for sample in self.samples]

    @property
    def is_finished(self) -> bool:
        return all(sample.sequence.is_finished for sample in self.samples)


class SequenceOutput:
    """A sequence of a job, and what makes its text (None: no text is wanted).

    Text is made when it is read, of all new tokens at once, unless each may complete a stop string: a step of 256 rows
    had to make 256 texts otherwise, a few characters each, of which most are read once, at the end.

    first_token_s, last_token_s: when they came, for whoever measures.
    """

    __slots__ = ("_num_read", "_output", "_text", "first_token_s", "has_stops", "job", "last_token_s", "sequence")

    def __init__(self, job: RequestState, sequence: Sequence, output: OutputText | None):
        self.job, self.sequence, self._output = job, sequence, output
        self.has_stops = output is not None and output.has_stops
        self._text, self._num_read = "", sequence.prompt_len
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    @property
    def text(self) -> str:
        """So far, or whole once the sequence has ended."""
        output, sequence = self._output, self.sequence
        if output is not None and not self.has_stops:
            tokens, reason = sequence.tokens, sequence.finish_reason
            if len(tokens) > self._num_read:
                ids = tokens[self._num_read :].tolist()
                self._num_read = len(tokens)
                self._text += output.push(ids, is_ended_by_token=reason == "stop")
            if reason is not None and reason != "abort":
                self._text += output.finish()
        return self._text

    def look(self, token: int, reason: str | None) -> tuple[str, int] | None:
        """At one more token, for stop strings: the one that it completed, and how many tokens there are up to its end.

        token: NO_TOKEN where the sequence ended without one. reason: why it ended with it, None if it goes on.
        """
        output = self._output
        assert output is not None
        if token != NO_TOKEN:
            self._text += output.push([token], is_ended_by_token=reason == "stop")
        if output.stop_string is not None:
            return output.stop_string, output.num_tokens
        if reason is not None:
            self._text += output.finish()
        return None


class StepUpdate:
    """For each token that a step brought, the job and whether a sample ended with it.

    Found out only where it is read, and before the next step: to touch 256 jobs takes longer than to append tokens.
    now_s: when the step was committed. ended: the samples that have ended. tokenless: those of entries without a token.
    """

    def __init__(self, sequences: list[Sequence], samples: Mapping[int, SequenceOutput], now_s: float = 0.0):
        self._sequences, self._samples, self.now_s = sequences, samples, now_s
        self._looked_at: dict[int, tuple[SequenceOutput | None, bool]] = {}
        self.ended: list[SequenceOutput] = []
        self.tokenless: list[SequenceOutput] = []

    def note(self, row: int, sample: SequenceOutput | None, token: int, has_ended: bool) -> None:
        """Whose the row is, None for nobody's, its token or NO_TOKEN, and whether that has ended."""
        self._looked_at[row] = sample, has_ended
        if sample is not None and has_ended:
            self.ended.append(sample)
        if sample is not None and token == NO_TOKEN:
            self.tokenless.append(sample)

    def samples(self) -> list[SequenceOutput]:
        """One entry a token or end, of those that are somebody's."""
        ids = [sequence.sequence_id for sequence in self._sequences]
        found = list(map(self._samples.get, ids))
        if self.ended:  # they are among the samples no more, and may have brought several tokens
            ended = {ids[row]: sample for row, (sample, has_ended) in self._looked_at.items() if has_ended}
            found = [sample or ended.get(i) for sample, i in zip(found, ids, strict=True)]
        for row, (sample, _) in self._looked_at.items():
            found[row] = sample
        return [sample for sample in found if sample is not None]

    def __iter__(self) -> Iterator[tuple[RequestState, bool]]:
        for row, sequence in enumerate(self._sequences):
            sample, has_ended = self._looked_at.get(row) or (self._samples.get(sequence.sequence_id), False)
            if sample is not None:
                yield sample.job, has_ended
