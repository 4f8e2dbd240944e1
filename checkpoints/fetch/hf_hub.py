"""Host: models of the Hugging Face hub, through its client library: HF_HOME, HF_TOKEN and HF_HUB_OFFLINE apply."""

import errno
from collections.abc import Sequence
from pathlib import Path

from checkpoints.errors import SourceError, reason_of
from checkpoints.fetch.download_cache import check_size

_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.tiktoken", "merges.txt", "vocab.txt"]
SMALL_FILES = ["*.json", "*.jinja"]
_SUBFOLDERS = ["*/*"]  # copies in other formats


def fetch(repo: str, file: str | None, cache_dir: Path | None, revision: str | None, token: str | None) -> Path:
    """The folder of the model's snapshot, or the path of `file` in it.

    .gguf weights are fetched only where the repository has no .safetensors.
    """
    import huggingface_hub as client
    from huggingface_hub.constants import is_offline_mode

    where = (cache_dir, revision, token)
    try:
        if file is not None:
            path = snapshot(repo, [file], *where) / file
            if not path.exists():
                raise SourceError(f"the model {repo!r} has no file {file!r}")
            return path
        folder = snapshot(repo, _PATTERNS, *where)
        if not any(folder.glob("*.safetensors")) and not is_offline_mode():
            gguf = _only_gguf(client.HfApi(token=token).list_repo_files(repo, revision=revision), repo)
            snapshot(repo, [gguf], *where)
        return folder
    except SourceError:
        raise
    except Exception as error:  # from the client, its HTTP library and the system
        raise SourceError(explain(error, repo, revision)) from error


def fetch_files(repo: str, files: Sequence[str], cache_dir: Path | None, token: str | None, max_bytes: int) -> Path:
    """The folder of the snapshot with these files, none of which may have more than `max_bytes`."""
    import huggingface_hub as client
    from huggingface_hub.constants import is_offline_mode

    try:
        if not is_offline_mode():
            for found in client.HfApi(token=token).get_paths_info(repo, list(files)):
                check_size(f"{repo}/{found.path}", getattr(found, "size", 0), max_bytes)
        return snapshot(repo, list(files), cache_dir, None, token)
    except SourceError:
        raise
    except Exception as error:  # from the client, its HTTP library and the system
        raise SourceError(explain(error, repo, None)) from error


def fetch_small_files(repo: str) -> Path:
    """The folder of the model's snapshot with its configuration, tokenizer.json and chat template, and no weights."""
    try:
        return snapshot(repo, SMALL_FILES, None, None, None)
    except Exception as error:  # from the client, its HTTP library and the system
        raise SourceError(explain(error, repo, None)) from error


def snapshot(repo: str, patterns: list[str], cache_dir: Path | None, revision: str | None, token: str | None) -> Path:
    """The folder of the model's snapshot with the matching top-level files; raises the client's own errors."""
    import huggingface_hub as client

    folder = client.snapshot_download(
        repo,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        allow_patterns=patterns,
        ignore_patterns=_SUBFOLDERS,
    )
    return Path(folder)


def _only_gguf(files: list[str], repo: str) -> str:
    ggufs = sorted(file for file in files if file.endswith(".gguf") and "/" not in file)
    if not ggufs:
        raise SourceError(f"the model {repo!r} has no .safetensors and no .gguf files")
    if len(ggufs) > 1:
        raise SourceError(
            f"the model {repo!r} has {len(ggufs)} .gguf files; name one (as {repo}/{ggufs[0]}): {', '.join(ggufs[:8])}"
        )
    return ggufs[0]


def explain(error: Exception, repo: str, revision: str | None) -> str:
    """One sentence: what an error of the hub's client means and what to do."""
    from huggingface_hub import constants, errors

    missing = f"the model {repo!r} is not in the local cache"
    match error:
        case errors.GatedRepoError():
            return f"the model {repo!r} is gated: accept its terms on its page, then set HF_TOKEN"
        case errors.RevisionNotFoundError():
            return f"the model {repo!r} has no revision {revision!r}"
        case errors.RepositoryNotFoundError():
            return f"the hub has no model {repo!r}: check the spelling, and set HF_TOKEN if it is private"
        case errors.LocalEntryNotFoundError() | errors.OfflineModeIsEnabled() if constants.is_offline_mode():
            return f"{missing}, and HF_HUB_OFFLINE forbids fetching it: unset it once, or name a local path"
        case errors.LocalEntryNotFoundError():
            return f"{missing} and the hub cannot be reached: check the network, or name a local path"
        case errors.HFValidationError():
            return f"{repo!r} is not a valid Hugging Face id"
        case OSError(errno=errno.ENOSPC):
            return f"the disk is full while fetching {repo!r}: make room, or set HF_HOME to another disk"
        case _:
            return f"fetching {repo!r} failed ({reason_of(error)})"
