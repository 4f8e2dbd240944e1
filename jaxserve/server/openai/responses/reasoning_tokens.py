"""Host: `ReasoningTokens`: how many of a sample's tokens are its reasoning."""

from collections.abc import Sequence

from jaxserve.text.detokenize import TextStream
from jaxserve.text.parsing.answer_events import Reasoning
from jaxserve.text.parsing.answer_format import AnswerFormat


class ReasoningTokens:
    """Tokens are counted up to the last one that shows reasoning, the opening tag included.

    answers: the format of the sample's text. stream: makes text of its tokens, one at a time, so the number does not
    depend on how they arrive.
    """

    def __init__(self, answers: AnswerFormat, stream: TextStream):
        self._parser = AnswerFormat(tags=answers.tags, begins_inside=answers.begins_inside).parser()
        self._stream = stream
        self._num_seen = 0
        self._has_content = False
        self.count = 0

    def add(self, token_ids: Sequence[int]) -> None:
        """Further tokens of the sample."""
        for token_id in token_ids:
            if self._has_content:
                return
            self._num_seen += 1
            for event in self._parser.push(self._stream.push((token_id,))):
                if isinstance(event, Reasoning):
                    self.count = self._num_seen
                else:
                    self._has_content = True
