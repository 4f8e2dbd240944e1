"""shellcheck finds nothing in the shell scripts."""

import subprocess
import sys
from pathlib import Path

from tests.repository.modules import ROOT

PROGRAM = Path(sys.executable).with_name("shellcheck")


def complaints(*files: Path) -> str:
    command = [PROGRAM, "--external-sources", "--source-path=SCRIPTDIR", *files]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def scripts() -> list[Path]:
    files = [ROOT / ".ci" / "run", *sorted((ROOT / "scripts").iterdir())]
    return [file for file in files if file.is_file() and file.read_text().startswith("#!/usr/bin/env bash")]


def test_scripts_are_sound():
    assert len(scripts()) > 10
    assert complaints(*scripts()) == ""


def test_a_planted_fault_is_noticed(tmp_path):
    file = tmp_path / "planted"
    file.write_text("#!/usr/bin/env bash\nrm $1\n")
    assert "SC2086" in complaints(file)
