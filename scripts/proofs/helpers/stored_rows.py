"""The rows of a proof: computed, most in processes of their own, and stored."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from scripts.prove import digest_of, module_of

ROOT = Path(__file__).parents[3]
STORE = ROOT / ".cache" / "proofs"


@cache
def state_of_sources(proof: str, *, with_tests: bool = False) -> str:
    """A name for all sources that the results depend on, as they were when it was first asked for. with_tests: the
    proof runs tests."""
    files = [file for folder in ("jaxserve", "checkpoints", "pallas_kernels") for file in (ROOT / folder).rglob("*.py")]
    files += (ROOT / "scripts/proofs/helpers").glob("*.py")
    file = ROOT / f"{module_of(proof).replace('.', '/')}.py"
    files += file.parent.glob("*.py") if file.stem != proof else [file]
    files += (ROOT / "tests").rglob("*.py") if with_tests else [ROOT / "tests/support/drafting.py"]
    return digest_of(files)


def stored_row(proof: str, row: str, num_devices: int = 1) -> list:
    """As it was stored, or computed now in a process: an interrupted proof goes on."""
    return stored(proof, row, lambda: in_process(proof, row, num_devices))


def stored(proof: str, row: str, compute: Callable[[], Any], *, with_tests: bool = False) -> Any:
    """JSON, as `stored_row`."""
    file = STORE / f"{proof}-{state_of_sources(proof, with_tests=with_tests)}.json"
    if row not in (rows := _read(file)):
        value = compute()
        rows = _read(file) | {row: value}  # the computation may have stored rows of its own
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows))
    return rows[row]


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {}


def in_process(proof: str, row: str, num_devices: int = 1) -> list:
    """JAX fixes the number of CPU devices at its initialization."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}"}
    run = f"import {module_of(proof)} as proof; proof.main(sys.argv[1:])"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {run}"
    command = [sys.executable, "-c", code, "--row", row]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])
