"""Host: the small files and the tensor headers of a Hugging Face hub model, without its weights.

The headers of safetensors files are requested by byte range, so a model of any size is described in seconds. Tensors of
which a description needs the values are requested in the same way, one by one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints.errors import SourceError
from checkpoints.fetch.hf_hub import SMALL_FILES, explain, snapshot
from checkpoints.formats.tensor_file import TensorInfo

_TIMEOUT_S = 10.0
_LENGTH_BYTES = 8  # before the header of a file, of which they say the length


@dataclass(frozen=True, slots=True)
class HubHeader:
    """folder: of the model's small files. tensors: by name. read: requests the bytes of a tensor, by its name; raises
    `SourceError`."""

    folder: Path
    tensors: dict[str, TensorInfo]
    read: Callable[[str], bytes]


def fetch_header(repo: str, cache_dir: Path | None, revision: str | None, token: str | None) -> HubHeader | None:
    """None where the model's weights are not safetensors, or the hub cannot be reached."""
    import httpx2  # the transport of the hub's client
    import huggingface_hub as client
    from huggingface_hub.errors import NotASafetensorsRepoError

    try:
        metadata = client.get_safetensors_metadata(repo, revision=revision, token=token)
        folder = snapshot(repo, SMALL_FILES, cache_dir, revision, token)
    except (NotASafetensorsRepoError, httpx2.ConnectError, httpx2.TimeoutException):
        return None
    except Exception as error:  # from the client, its HTTP library and the system
        raise SourceError(explain(error, repo, revision)) from error
    tensors: dict[str, TensorInfo] = {}
    places: dict[str, tuple[str, int]] = {}
    for file_name, file in metadata.files_metadata.items():
        for name, found in file.tensors.items():
            start, stop = found.data_offsets
            tensors[name] = TensorInfo(name, tuple(found.shape), found.dtype, stop - start)
            places[name] = file_name, start
    ranges = _Ranges(repo, revision, token)
    return HubHeader(folder, tensors, lambda name: ranges.after_header(*places[name], tensors[name].nbytes))


class _Ranges:
    """Byte ranges of a model's weight files."""

    def __init__(self, repo: str, revision: str | None, token: str | None) -> None:
        self._repo, self._revision, self._token = repo, revision, token
        self._header_ends: dict[str, int] = {}

    def after_header(self, file: str, start: int, num_bytes: int) -> bytes:
        """start: counted from the end of the file's header."""
        if file not in self._header_ends:
            length = int.from_bytes(self._request(file, 0, _LENGTH_BYTES), "little")
            self._header_ends[file] = _LENGTH_BYTES + length
        return self._request(file, self._header_ends[file] + start, num_bytes)

    def _request(self, file: str, start: int, num_bytes: int) -> bytes:
        import huggingface_hub as client

        utils: Any = client.utils  # not fully typed
        url = client.hf_hub_url(self._repo, file, revision=self._revision)
        headers = utils.build_hf_headers(token=self._token) | {"range": f"bytes={start}-{start + num_bytes - 1}"}
        try:
            response = utils.get_session().get(url, headers=headers, timeout=_TIMEOUT_S)
            utils.hf_raise_for_status(response)
        except Exception as error:  # from the client, its HTTP library and the system
            raise SourceError(explain(error, self._repo, self._revision)) from error
        if len(response.content) != num_bytes:
            raise SourceError(f"the hub sent {len(response.content)} of {num_bytes} bytes of {self._repo}/{file}")
        return response.content
