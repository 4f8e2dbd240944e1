"""Host: `RequestState`: a running request; `SequenceOutput`: one sample of it; `StepUpdate`: what a step changed."""

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
    """A running request. prompt_ids: those of the request as a list, for outputs. detokenizer: None: no text is asked
    for."""

    request: Request
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
    """A sequence of a request, and what makes its text (None: no text is asked for).

    Text is made when it is read, of all new tokens at once, unless each token may complete a stop string: otherwise a
    step of 256 rows would make 256 texts of a few characters each, most of which are read once, at the end.

    first_token_s, last_token_s: when these tokens came, for metrics.
    """

    __slots__ = ("_num_read", "_output", "_text", "first_token_s", "has_stops", "last_token_s", "sequence", "state")

    def __init__(self, state: RequestState, sequence: Sequence, output: OutputText | None):
        self.state, self.sequence, self._output = state, sequence, output
        self.has_stops = output is not None and output.has_stops
        self._text, self._num_read = "", sequence.prompt_len
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    @property
    def text(self) -> str:
        """The text so far; the whole of it once the sequence has ended."""
        output, sequence = self._output, self.sequence
        if output is not None and not self.has_stops:
            tokens, reason = sequence.tokens, sequence.finish_reason
            if len(tokens) > self._num_read:
                ids = tokens[self._num_read :].tolist()
                self._num_read = len(tokens)
                # A complete grammar ends a text, too: with a token of it.
                is_ended_by_token = reason == "stop" and ids[-1] in sequence.request.stop_ids
                self._text += output.push(ids, is_ended_by_token=is_ended_by_token)
            if reason is not None and reason != "abort":
                self._text += output.finish()
        return self._text

    def push(self, token: int, reason: str | None) -> tuple[str, int] | None:
        """Add one token to the text of a sample with stop strings.

        Returns the stop string that it completes and the number of tokens up to the end of that; None otherwise.
        token: NO_TOKEN where the sequence ended without one. reason: why it ended with this token, None if it goes on.
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
    """For each token of a step, its request and whether a sample ended with it.

    Evaluated lazily; valid until the next step: to touch 256 requests takes longer than to append their tokens.
    now_s: when the step was committed. ended: the samples that have ended. tokenless: those of entries without a token.
    """

    def __init__(self, sequences: list[Sequence], samples: Mapping[int, SequenceOutput], now_s: float = 0.0):
        self._sequences, self._samples, self.now_s = sequences, samples, now_s
        self._examined: dict[int, tuple[SequenceOutput | None, bool]] = {}
        self.ended: list[SequenceOutput] = []
        self.tokenless: list[SequenceOutput] = []

    def note(self, row: int, sample: SequenceOutput | None, token: int, has_ended: bool) -> None:
        """Record an examined row: its sample (None: of no request here), its token or NO_TOKEN, whether it ended."""
        self._examined[row] = sample, has_ended
        if sample is not None and has_ended:
            self.ended.append(sample)
        if sample is not None and token == NO_TOKEN:
            self.tokenless.append(sample)

    def samples(self) -> list[SequenceOutput]:
        """One entry for each token or end of a request's sample."""
        ids = [sequence.sequence_id for sequence in self._sequences]
        found = list(map(self._samples.get, ids))
        if self.ended:  # ended samples are no longer in `_samples`, and may have several tokens in this step
            ended = {ids[row]: sample for row, (sample, has_ended) in self._examined.items() if has_ended}
            found = [sample or ended.get(i) for sample, i in zip(found, ids, strict=True)]
        for row, (sample, _) in self._examined.items():
            found[row] = sample
        return [sample for sample in found if sample is not None]

    def __iter__(self) -> Iterator[tuple[RequestState, bool]]:
        for row, sequence in enumerate(self._sequences):
            sample, has_ended = self._examined.get(row) or (self._samples.get(sequence.sequence_id), False)
            if sample is not None:
                yield sample.state, has_ended
