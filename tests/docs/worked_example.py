"""A page's worked example, done as the page says: its code blocks are written into a copy of the packages and run.

A fence says by its title which file it is of, as in ```` ```python title="jaxserve/cli/hello.py" ````:

- `python`: the whole new file; one that is titled `example.py` is the program to run,
- `diff`: lines of a file that is there, `-` replaced by `+`; they must stand there exactly once,
- `text`, titled `output`: what the program prints.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.repository.modules import PACKAGES, ROOT

FENCE = re.compile(r'^```(python|diff|text) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PROGRAM, OUTPUT = "example.py", "output"


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks_of(page: str) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page)]


def copied_packages(folder: Path) -> Path:
    """The three packages in a folder of their own, with the bytecode that is there already."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)
    return folder


def apply(block: Block, folder: Path) -> None:
    """Write a new file, or change one."""
    path = folder / block.title
    if block.language == "python":
        assert not path.exists(), f"{block.title} exists: the page must change it by a diff"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        return
    lines = block.text.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(old) == 1, f"{block.title} has these lines {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new))


def run_example(page: Path, folder: Path) -> tuple[str, str]:
    """(what the page says that its program prints, what it prints)."""
    blocks = blocks_of(page.read_text())
    (expected,) = [block.text for block in blocks if block.title == OUTPUT]
    copied_packages(folder)
    for block in blocks:
        if block.title != OUTPUT:
            apply(block, folder)
    command = [sys.executable, PROGRAM]
    environment = os.environ | {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return expected, done.stdout
