"""A file that becomes shorter while it is open is refused with the reason; mapped memory would end the process."""

import subprocess
import sys

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

VALUES = np.arange(2**16, dtype=np.float32).reshape(64, 1024)

CODE = """
import os, sys
from pathlib import Path
from checkpoints.errors import CheckpointError
from checkpoints.formats.gguf import GgufFile
from checkpoints.formats.safetensors import SafetensorsFile

path, method = Path(sys.argv[1]), sys.argv[2]
file = (GgufFile if path.suffix == ".gguf" else SafetensorsFile)(path)
read = getattr(file, method)
print(read("w", 0, 64).sum())
os.truncate(path, path.stat().st_size - 2**15)
try:
    read("w", 0, 64)
except CheckpointError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "method"), [("w.safetensors", "read_rows"), ("w.safetensors", "read_columns"), ("w.gguf", "read_rows")]
)
def test_reading_a_file_that_was_truncated_meanwhile_is_refused(name, method, tmp_path):
    path = tmp_path / name
    if name == "w.gguf":
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("w", VALUES)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    else:
        save_file({"w": VALUES}, path)
    run = subprocess.run([sys.executable, "-c", CODE, str(path), method], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    total, refusal = run.stdout.splitlines()
    assert float(total) == (VALUES[:, :64] if method == "read_columns" else VALUES).sum()
    assert refusal.startswith(f"{path}: ends at byte ")
    assert refusal.endswith("it became shorter while it was read")
