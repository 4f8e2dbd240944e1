"""Host: `PromptEcho`: the prompt at the start of a completion that echoes it, and where its tokens start in it."""

from dataclasses import dataclass

from jaxserve.core.outputs import RequestOutput
from jaxserve.text.detokenize import Detokenizer


@dataclass(frozen=True, slots=True)
class PromptEcho:
    """offsets: for each token of the prompt, where it or the character that it is part of starts in `text`."""

    text: str
    offsets: list[int]

    @classmethod
    def of(cls, output: RequestOutput, detokenizer: Detokenizer | None, *, is_alone: bool) -> "PromptEcho":
        """The prompt as the client sent it; for token ids and truncated prompts their text, special tokens included.

        Special tokens that the tokenizer puts around a text are not part of it and have no width. An incomplete
        character at the end belongs to the completion, unless the echo `is_alone`.
        """
        ids = output.prompt_token_ids
        if detokenizer is None:
            return cls(output.prompt or "", [0] * len(ids))
        stream = detokenizer.stream((), skip_special_tokens=False)
        offsets: list[int] = []
        decoded = ""
        for token in ids:
            offsets.append(len(decoded))
            decoded += stream.push((token,))
        if output.prompt is None:
            return cls(decoded + (stream.finish() if is_alone else ""), offsets)
        start = max(decoded.find(output.prompt), 0)
        return cls(output.prompt, [min(max(offset - start, 0), len(output.prompt)) for offset in offsets])
