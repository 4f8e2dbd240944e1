"""Host: the small files and the tensor headers of a Hugging Face hub model, without its weights.

The headers of safetensors files are requested by byte range, so a model of any size is described in seconds.
"""

from pathlib import Path

from checkpoints.errors import SourceError
from checkpoints.fetch.hf_hub import SMALL_FILES, explain, snapshot
from checkpoints.formats.tensor_file import TensorInfo


def fetch_header(
    repo: str, cache_dir: Path | None, revision: str | None, token: str | None
) -> tuple[Path, dict[str, TensorInfo]] | None:
    """The folder of the model's small files, and its tensors by name; None where its weights are not safetensors,
    or the hub cannot be reached.
    """
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
    for file in metadata.files_metadata.values():
        for name, found in file.tensors.items():
            start, stop = found.data_offsets
            tensors[name] = TensorInfo(name, tuple(found.shape), found.dtype, stop - start)
    return folder, tensors
