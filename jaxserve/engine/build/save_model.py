"""Wiring: an engine's model, as it is now, in a folder that any engine loads: weights that were changed live on."""

from pathlib import Path

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.orbax_folder import FOLDER
from jaxserve.engine.build.build import EngineParts
from jaxserve.engine.build.hf_files import export_text, exported_config
from jaxserve.runner.orbax_io import save_params


def save_model(built: EngineParts, folder: Path) -> None:
    """Writes `built.runner.params` in the Orbax form, with configuration and tokenizer; `LLM(folder)` loads it on any
    mesh. The folder must be empty or not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty; name another folder")
    write_json(folder / "config.json", exported_config(built.described, built.runner.params["embed"].dtype.name))
    if built.tokenizer is not None:
        export_text(folder, built.tokenizer, built.chat_template)
    save_params(folder / FOLDER, built.runner.params, built.model, built.runner.settings.model.mesh)
