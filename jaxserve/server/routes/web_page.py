"""Host: the web page at `/`: static files of this package, which load nothing from other sites.

The files' digest is part of their paths, so browsers may cache them forever, and a new version has new paths. They are
read once, at the start; a request's path is looked up among their names and never reaches the file system.
"""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_state import ServerState

INDEX = "index.html"
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
CLASSIC = "theme.js"  # the only script that is no module
PRELOADS, PRELOAD = b"<!-- PRELOADS -->", '<link rel="modulepreload" href="STATIC/{name}">'
# No inline code, no other sites, and no script may create elements from text.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
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
    """The contents of the page's files by their path below `static`; not of licenses and notes, which nothing loads."""
    found = _walk(files("jaxserve.server") / "static", "")
    return {path: file.read_bytes() for path, file in sorted(found, key=lambda item: item[0]) if _kind(path)}


def _walk(folder: Traversable, before: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{before}{entry.name}/")
        else:
            yield before + entry.name, entry


def _kind(path: str) -> str | None:
    return MEDIA_TYPES.get(path.rpartition(".")[2])


def index_page(contents: dict[str, bytes], digest: str) -> bytes:
    """The page with the paths of its files, all of whose modules browsers load side by side."""
    modules = [name for name in contents if name.endswith(".js") and name != CLASSIC]
    preloads = "\n".join(PRELOAD.format(name=name) for name in modules).encode()
    return contents[INDEX].replace(PRELOADS, preloads).replace(b"STATIC", f"static/{digest}".encode())


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
    index = index_page(contents, digest)
    served = {f"{digest}/{name}": content for name, content in contents.items() if name != INDEX}
    tag = f'"{digest}"'

    @router.get("/")
    async def page(request: Request) -> Response:
        headers = {**HEADERS, **REVALIDATE, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(index, media_type=MEDIA_TYPES["html"], headers=headers)

    @router.get("/static/{path:path}")
    async def static(path: str) -> Response:
        if path not in served:
            raise ApiError(404, "no such file")
        return Response(served[path], media_type=_kind(path), headers={**HEADERS, **CACHE_FOREVER})

    return router
