"""Wiring: the output folder of a conversion: empty, begun by an earlier run of it, or with a model to overwrite."""

import shutil
from pathlib import Path
from typing import Any, cast

from checkpoints.errors import CheckpointError
from checkpoints.formats import orbax_folder, orbax_index, safetensors_write
from checkpoints.formats.bounded_json import read_object
from checkpoints.quantized.quant_config import SIDECARS
from checkpoints.sources import CONVERSION_MANIFEST
from checkpoints.writing.conversion_manifest import MAX_BYTES
from jaxserve.engine.build.hf_files import CONFIG, SMALL_FILES


def prepare(folder: Path, source: Path, *, is_overwritten: bool) -> None:
    """Makes `folder`, or checks that a conversion began it; with `is_overwritten`, removes the model in it.

    Raises `CheckpointError` where the folder holds anything else, or is the `source` itself.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; name a folder to write to")
    if folder.resolve() == source.resolve():
        raise CheckpointError(f"{folder} is the source itself; name another folder to write to")
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        return
    if is_overwritten:
        _remove_model(folder)
    elif not (folder / CONVERSION_MANIFEST).is_file():
        raise CheckpointError(f"{folder} is not empty; name another folder, or --overwrite the model in it")


def _remove_model(folder: Path) -> None:
    """Removes the manifest last, so that the folder can be overwritten again after an interrupt."""
    root, manifest = folder / orbax_folder.FOLDER, folder / CONVERSION_MANIFEST
    is_saved = orbax_index.is_index(root / orbax_index.INDEX)
    is_model = (folder / CONFIG).is_file() and (is_saved or any(folder.glob("*.safetensors")))
    if not manifest.is_file() and not is_model:
        raise CheckpointError(f"{folder} holds no model that could be overwritten; name another folder")
    if root.exists():
        if not is_saved and not _is_begun(manifest):
            raise CheckpointError(f"{root} was not written by jaxserve, and is left alone; name another folder")
        shutil.rmtree(root)
    files = (safetensors_write.SINGLE, safetensors_write.INDEX, *SMALL_FILES, *SIDECARS)
    for path in (*folder.glob("model-*-of-*.safetensors*"), *(folder / name for name in files), manifest):
        path.unlink(missing_ok=True)


def _is_begun(manifest: Path) -> bool:
    """Whether the manifest is of a conversion to Orbax, perhaps interrupted before any part was complete."""
    if not manifest.is_file():
        return False
    try:
        job = read_object(manifest, MAX_BYTES).get("job")
    except CheckpointError:
        return False
    return isinstance(job, dict) and cast("dict[str, Any]", job).get("format") == "orbax"
