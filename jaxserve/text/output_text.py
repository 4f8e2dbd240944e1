"""Host: `OutputText`: the text of one running sequence, with stop strings and the number of tokens up to them."""

from collections.abc import Sequence

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.text.detokenize import TextStream
from jaxserve.text.stop_strings import StopStrings


class OutputText:
    """Takes the committed tokens of a sequence and returns the text that may be sent to the client.

    stop_string: the stop string that ended the text. The sequence then ends with `num_tokens` tokens; the last one
    completed the stop string. Stop strings are ignored in the first min_tokens tokens.
    """

    __slots__ = ("_matcher", "_min_tokens", "_shows_stop", "_stream", "num_tokens")

    def __init__(self, stream: TextStream, params: SamplingParams, stops: StopStrings | None):
        self._stream = stream
        self._matcher = stops.matcher() if stops is not None else None
        self._min_tokens = params.min_tokens
        self._shows_stop = params.include_stop_str_in_output
        self.num_tokens = 0

    @property
    def has_stops(self) -> bool:
        """Whether the request has stop strings."""
        return self._matcher is not None

    @property
    def stop_string(self) -> str | None:
        return self._matcher.matched if self._matcher is not None else None

    def push(self, token_ids: Sequence[int], is_ended_by_token: bool = False) -> str:
        """New text. is_ended_by_token: the last token ended the sequence, and is shown only if stop strings are."""
        shown = token_ids[:-1] if is_ended_by_token and not self._shows_stop else token_ids
        if self._matcher is None:
            self.num_tokens += len(token_ids)
            return self._stream.push(shown)
        texts: list[str] = []
        for token_id in shown:
            self.num_tokens += 1
            text = self._stream.push((token_id,))
            texts.append(self._matcher.push(text, may_match=self.num_tokens > self._min_tokens))
            if self._matcher.matched is not None:
                return "".join(texts)
        self.num_tokens += len(token_ids) - len(shown)
        return "".join(texts)

    def finish(self) -> str:
        """The rest of the text when the sequence has ended; nothing after a stop string."""
        rest = self._stream.finish()
        if self._matcher is None:
            return rest
        return self._matcher.push(rest, may_match=False) + self._matcher.finish()
