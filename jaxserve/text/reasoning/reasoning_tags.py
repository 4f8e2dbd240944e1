"""Host: `ReasoningTags`: where a model's reasoning ends and its message begins, by the names of vLLM's parsers."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.text.parsing.answer_events import Content, Reasoning, Steps
from jaxserve.text.parsing.text_reader import TextReader


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """start, end: the tags around reasoning. is_always_open: the answer begins within reasoning although neither the
    prompt nor the answer shows the first tag."""

    start: str
    end: str
    is_always_open: bool = False

    def begins_inside(self, prompt_end: str) -> bool:
        """Whether an answer begins within reasoning. prompt_end: the end of the prompt, with special tokens."""
        text = prompt_end.rstrip()
        return text.endswith(self.start) or (self.is_always_open and not text.endswith(self.end))

    def before(self, form: StructuredOutputsParams, *, is_inside: bool) -> StructuredOutputsParams:
        """The form of an answer that may reason first, or is within reasoning already, unless the form says how."""
        return form.after_reasoning(self.end, None if is_inside else self.start)

    def parse(self, reader: TextReader, *, is_inside: bool) -> Steps[None]:
        """Read the reasoning at the beginning of an answer, if there is any. is_inside: the prompt has opened it."""
        reader.hold()
        yield from reader.spaces()
        if not (yield from reader.accept(self.start)) and not is_inside:
            yield Content(reader.release())
            return
        reader.release()
        if (yield from reader.until((self.end,), Reasoning)) is not None:
            reader.release()
            yield from reader.spaces()


REASONING_TAGS: Mapping[str, ReasoningTags] = {
    "deepseek_r1": ReasoningTags("<think>", "</think>", is_always_open=True),
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
    "qwen3": ReasoningTags("<think>", "</think>"),
}


def tags_of_template(source: str | None) -> str | None:
    """The name of the tags that a chat template mentions."""
    return next((name for name in ("qwen3", "mistral") if source and REASONING_TAGS[name].end in source), None)
