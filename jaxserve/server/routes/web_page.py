"""Host: the web page at `/`: static files of this package, which load nothing from other sites.

The files' digest is part of their paths, so browsers may cache them forever, and a new version has new paths.
"""

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_state import ServerState

INDEX = "index.html"
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# No inline code, no other sites, and no script may create elements from text.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
CACHE_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
REVALIDATE = {"Cache-Control": "private, no-cache"}


def read_files() -> dict[str, bytes]:
    """The contents of the page's files by name."""
    return {file.name: file.read_bytes() for file in (files("jaxserve.server") / "static").iterdir() if file.is_file()}


def digest_of(contents: dict[str, bytes]) -> str:
    """Sixteen hexadecimal characters that identify the files' contents."""
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name} {len(contents[name])} ".encode() + contents[name])
    return digest.hexdigest()[:16]


def routes(_: ServerState) -> APIRouter:
    """The page and its files, available before the model is loaded."""
    router, contents = APIRouter(include_in_schema=False), read_files()
    digest = digest_of(contents)
    index = contents.pop(INDEX).replace(b"STATIC", f"static/{digest}".encode())
    tag = f'"{digest}"'

    @router.get("/")
    async def page(request: Request) -> Response:
        headers = {**HEADERS, **REVALIDATE, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(index, media_type=MEDIA_TYPES["html"], headers=headers)

    @router.get("/static/{version}/{name}")
    async def static(version: str, name: str) -> Response:
        if version != digest or name not in contents:
            raise ApiError(404, "no such file")
        kind = MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(contents[name], media_type=kind, headers={**HEADERS, **CACHE_FOREVER})

    return router
