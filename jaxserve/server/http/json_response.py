"""Host: `Json` and `offloaded_json`: JSON responses, long ones built and serialized in a thread."""

from collections.abc import Callable
from typing import Any

import orjson
from starlette.responses import Response

from jaxserve.engine.serving.offload import offload

MAX_INLINE_ITEMS = 1024  # tokens, log-probabilities or similar, which are made or serialized well within a millisecond


class Json(Response):
    """A response whose content is serialized as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


async def offloaded_json(make: Callable[[], Any], size: int) -> Response:
    """The result of `make` as a JSON response. size: how many items it has."""
    content = await offload(lambda: orjson.dumps(make()), size, MAX_INLINE_ITEMS)
    return Response(content, media_type=Json.media_type)
