"""Host: `choice_end`: why a choice ended, in the words of OpenAI's clients."""

from jaxserve.core.outputs import CompletionOutput


def choice_end(completion: CompletionOutput) -> dict[str, str | int | None]:
    """The fields `finish_reason` and `stop_reason`.

    Strict clients refuse finish reasons that OpenAI does not have, and it has none for deadlines: a text that a
    deadline cut ends by "length", and `stop_reason` is "timeout", which a stop string never is in that case.
    """
    if completion.finish_reason == "timeout":
        return {"finish_reason": "length", "stop_reason": "timeout"}
    return {"finish_reason": completion.finish_reason, "stop_reason": completion.stop_reason}
