"""Host: `OutputItems`: the items of a response's output while they are generated, and the events that report them."""

from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]


class OutputItems:
    """Text, reasoning and function calls arrive in pieces. An item is open until a piece of another one arrives.

    items: the finished ones. suffix: of the items' ids. Every method returns the events of what it adds, without their
    sequence numbers, which must be consumed.
    """

    def __init__(self, suffix: str):
        self.items: list[Json] = []
        self._suffix = suffix
        self._open: Json | None = None
        self._pieces: list[str] = []
        self._logprobs: list[Json] = []

    def text(self, piece: str, logprobs: Sequence[Json] = ()) -> Iterator[Json]:
        """logprobs: of the tokens that made the piece, in the form of a whole text."""
        if self._kind != "message":
            yield from self._start("msg", {"type": "message", "role": "assistant", "content": []}, _text_part("", []))
        self._pieces.append(piece)
        self._logprobs += logprobs
        if piece or logprobs:
            place = {**self._place, "content_index": 0}
            yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": _in_event(logprobs)}

    def reasoning(self, piece: str) -> Iterator[Json]:
        if self._kind != "reasoning":
            yield from self._start("rs", {"type": "reasoning", "summary": [], "content": []}, _reasoning_part(""))
        self._pieces.append(piece)
        if piece:
            yield {"type": "response.reasoning_text.delta", **self._place, "content_index": 0, "delta": piece}

    def call(self, call_id: str, name: str) -> Iterator[Json]:
        """The start of a function call, whose `arguments` follow."""
        fields = {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
        yield from self._start("fc", fields, None)

    def arguments(self, piece: str) -> Iterator[Json]:
        assert self._kind == "function_call"
        self._pieces.append(piece)
        if piece:
            yield {"type": "response.function_call_arguments.delta", **self._place, "delta": piece}

    def end(self, status: str) -> Iterator[Json]:
        """The end of the last item, with its status. An output of nothing is an empty text."""
        if not self.items and self._open is None:
            yield from self.text("")
        yield from self._close(status)

    @property
    def _kind(self) -> str | None:
        return None if self._open is None else self._open["type"]

    @property
    def _place(self) -> Json:
        """The fields by which events refer to the open item."""
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self.items)}

    def _start(self, prefix: str, fields: Json, part: Json | None) -> Iterator[Json]:
        """part: the first part of the item's content, still empty."""
        yield from self._close("completed")
        index = len(self.items)
        self._open = {"id": f"{prefix}_{self._suffix}_{index}", **fields, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": self._open}
        if part is not None:
            yield {"type": "response.content_part.added", **self._place, "content_index": 0, "part": part}

    def _close(self, status: str) -> Iterator[Json]:
        if self._open is None:
            return
        place, text = self._place, "".join(self._pieces)
        item = {**self._open, "status": status}
        if item["type"] == "function_call":
            item["arguments"] = text
            yield {"type": "response.function_call_arguments.done", **place, "arguments": text}
        else:
            place["content_index"] = 0
            if item["type"] == "message":
                part, done, others = (
                    _text_part(text, self._logprobs),
                    "response.output_text.done",
                    {"logprobs": _in_event(self._logprobs)},
                )
            else:
                part, done, others = _reasoning_part(text), "response.reasoning_text.done", {}
            item["content"] = [part]
            yield {"type": done, **place, "text": text, **others}
            yield {"type": "response.content_part.done", **place, "part": part}
        yield {"type": "response.output_item.done", "output_index": place["output_index"], "item": item}
        self.items.append(item)
        self._open, self._pieces, self._logprobs = None, [], []


def _text_part(text: str, logprobs: list[Json]) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _reasoning_part(text: str) -> Json:
    return {"type": "reasoning_text", "text": text}


def _in_event(logprobs: Sequence[Json]) -> list[Json]:
    """Events have log-probabilities without the tokens' bytes."""

    def short(entry: Json) -> Json:
        return {"token": entry["token"], "logprob": entry["logprob"]}

    return [{**short(each), "top_logprobs": [short(top) for top in each["top_logprobs"]]} for each in logprobs]
