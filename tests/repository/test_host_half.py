"""Host modules run without jax: scheduling, text and file formats need no accelerator stack, and start fast."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.modules import ROOT, names_of

VERBS = ("", "generate", "serve", "batch", "bench serve")
PROGRAM = Path(__file__).with_name("import_without_jax.py")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=environment, timeout=120)


def loaded_after(statements: str, *suspects: str) -> list[str]:
    """The modules of `suspects` that a fresh process has loaded after running the statements."""
    report = f"print(*(name for name in {suspects} if name in sys.modules), file=sys.stderr)"
    result = run("-c", f"import sys\n{statements}\n{report}")
    assert result.returncode == 0, result.stderr
    return result.stderr.split()


def test_host_modules_import_without_jax():
    host = names_of("Host")
    assert host
    result = run(str(PROGRAM), *host)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_module_that_needs_jax_is_caught_by_name():
    result = run(str(PROGRAM), "jaxtyping", "optax", "pallas_kernels.qtensor")
    assert result.returncode == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["optax", "pallas_kernels.qtensor"]


def test_importing_jaxserve_does_not_import_jax():
    assert loaded_after("import jaxserve", "jaxserve", "jax", "numpy") == ["jaxserve"]


def test_the_process_of_a_clients_template_is_light():
    name = "jaxserve.text.client_template_process"
    suspects = ["jax", "numpy", "tokenizers", "asyncio", "subprocess", "starlette"]
    assert loaded_after(f"import {name}, jaxserve.text.template_sandbox", name, *suspects) == [name]


@pytest.mark.parametrize("arguments", [[*verb.split(), "--help"] for verb in VERBS], ids=" ".join)
def test_help_costs_neither_jax_nor_numpy(arguments):
    statements = (
        "from jaxserve.cli.main import main\n"
        f"sys.argv = ['jaxserve', *{arguments}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code"
    )
    suspects = [
        "jax",
        "numpy",
        "flax",
        "gguf",
        "tokenizers",
        "jinja2",
        "huggingface_hub",
        "tqdm",
        "rich",
        "pydantic",
        "aiohttp",
        "uvicorn",
    ]
    assert loaded_after(statements, "jaxserve.cli.main", *suspects) == ["jaxserve.cli.main"]
