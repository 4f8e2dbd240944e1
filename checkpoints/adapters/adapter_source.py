"""Host: `find_adapter`: finds the two files of the adapter that a user names, fetching them first where needed."""

from pathlib import Path

from checkpoints.adapters.adapter_config import CONFIG
from checkpoints.errors import SourceError
from checkpoints.fetch import gcs_bucket, hf_hub
from checkpoints.fetch.download_cache import check_size
from checkpoints.sources import hub_repo

WEIGHTS = "adapter_model.safetensors"
FILES = (CONFIG, WEIGHTS)
_FORMS = f"a folder with {CONFIG} and {WEIGHTS}, gs://BUCKET/PATH of such a folder, or a Hugging Face id (org/name)"


def find_adapter(source: str, *, max_bytes: int, cache_dir: Path | None = None, token: str | None = None) -> Path:
    """The folder with the files of `source`; raises `SourceError` with what to do.

    max_bytes: of its file of weights; a larger one is not fetched. cache_dir, token: see `sources.resolve`.
    """
    folder = Path(source).expanduser()
    if not source or not folder.exists():
        if source.startswith(gcs_bucket.SCHEME):
            folder = gcs_bucket.fetch_files(source, FILES, cache_dir, max_bytes)
        elif (repo := hub_repo(source)) is not None:
            folder = hf_hub.fetch_files(repo, FILES, cache_dir, token, max_bytes)
        else:
            raise SourceError(f"{source!r} is not the name of an adapter; name {_FORMS}")
    if not folder.is_dir():
        raise SourceError(f"{source} is a file; name {_FORMS}")
    for name in FILES:
        if not (folder / name).is_file():
            raise SourceError(f"{source} has no {name}{_instead(folder)}; name {_FORMS}")
    check_size(str(folder / WEIGHTS), (folder / WEIGHTS).stat().st_size, max_bytes)
    return folder


def _instead(folder: Path) -> str:
    if (folder / "adapter_model.bin").is_file():
        return " but adapter_model.bin, which is not read because it can run code: save it again as safetensors"
    return ""
