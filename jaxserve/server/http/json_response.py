"""Host: `Json` and `offloaded_json`: JSON responses, long ones built and serialized in a thread."""

from collections.abc import Callable
from typing import Any

import orjson
from starlette.responses import Response

from jaxserve.server.http.offload import offload


class Json(Response):
    """A response whose content is serialized as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


async def offloaded_json(make: Callable[[], Any], size: int) -> Response:
    """The result of `make` as a JSON response; `size` as in `offload`."""
    return Response(await offload(lambda: orjson.dumps(make()), size), media_type=Json.media_type)
