"""Host: `HeadAsGet`: answers HEAD where GET is, with the same status and headers and without the content."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxserve.server.http.error_responses import ClientDisconnected


class HeadAsGet:
    """Between the routes and the middleware that counts requests, which sees the method that was sent."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
            elif message.get("more_body"):
                raise ClientDisconnected  # ends a stream, which may be without end

        inner = {**scope, "method": "GET"}
        try:
            await self._app(inner, receive, send_head)
        finally:
            if "route" in inner:
                scope["route"] = inner["route"]
