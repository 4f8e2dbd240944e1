"""Host: `allowed_path`: where a server may read an adapter that a request asks it to load while it runs."""

import os
import re
from pathlib import Path

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig

PARAM = "lora_path"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def allowed_path(path: str, config: ServerConfig) -> str:
    """The folder that `path` names, absolute and without links, in one of the server's `lora_dirs`; or an id of the Hub
    or a gs:// address as it is, where `lora_allow_remote` is on.

    A relative path is looked up in each of the folders. Nothing outside of them is read, through links neither, and
    whether something lies there does not show. Raises `ApiError`.
    """
    if not config.lora_dirs and not config.lora_allow_remote:
        raise _refusal(403, "this server loads no adapters while it runs: start it with --lora-dirs")
    is_remote = "://" in path
    roots = [_resolved(Path(folder).expanduser()) for folder in config.lora_dirs]
    candidates = [] if is_remote or "\0" in path else [_resolved(root / path) for root in roots]
    inside = [folder for folder in candidates if _is_inside(folder, roots)]
    for folder in inside:
        if os.path.isdir(folder):
            if not all(_is_inside(_resolved(file), roots) for file in _files(folder)):
                raise _refusal(403, "the folder has links to files outside --lora-dirs")
            return str(folder)
    # Where something lies under the path here, a reader would take that for the adapter.
    is_remote |= HUB_ID.fullmatch(path) is not None
    if config.lora_allow_remote and is_remote and not os.path.lexists(path):
        return path
    if inside:
        raise _refusal(404, "--lora-dirs have no such folder")
    others = "" if config.lora_allow_remote else ", and nothing is fetched without --lora-allow-remote"
    raise _refusal(403, f"this is no folder in --lora-dirs{others}")


def _refusal(status: int, message: str) -> ApiError:
    return ApiError(status, f"{PARAM}: {message}", param=PARAM)


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise _refusal(400, f"the folder cannot be read ({error.strerror})") from error


def _resolved(path: Path) -> Path:
    """Without links; `Path.resolve` raises RuntimeError for those that lead in a circle."""
    return Path(os.path.realpath(path))


def _is_inside(path: Path, roots: list[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
