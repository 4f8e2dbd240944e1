"""Host modules run without jax: scheduling, text and file formats need no accelerator stack, and start fast."""

import subprocess
import sys
from pathlib import Path

from tests.repository.modules import ROOT, names_of

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


def test_the_process_of_grammars_is_light():
    name = "jaxserve.constrained.grammar_process"
    suspects = ["jax", "numpy", "asyncio", "subprocess", "huggingface_hub", "jinja2"]
    assert loaded_after(f"import {name}, tokenizers", name, *suspects) == [name]


def test_the_help_of_no_verb_costs_jax_or_numpy():
    statements = (
        "import contextlib\nfrom jaxserve.cli.main import VERBS, main\n"
        "for words in ([], ['--version'], ['bench', 'serve', '--help'], *([verb, '--help'] for verb in VERBS)):\n"
        "    with contextlib.suppress(SystemExit):\n        main(words)"
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
