"""The lock files pin every package by hash, and say nothing about where a machine gets it from."""

import re

import pytest

from tests.house.modules import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
HASHED = [ROOT / "requirements" / name for name in ("main.txt", "dev.txt")]
ADDRESS = re.compile(r"://|file:|@ |--(extra-)?index.?url|--find-links|(^|\s)[./~]*/\w", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """name==version and its markers → the requirement's whole entry, hashes included."""
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    return {entry.partition("\\")[0].strip(): entry for entry in entries}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_file_names_no_address(lock):
    requirements = re.sub(r"^#.*$", "", lock.read_text(), flags=re.MULTILINE)
    assert not ADDRESS.search(requirements)


@pytest.mark.parametrize("address", ["--find-links x", "a @ b", "s3://host/a", "/folder/a.whl", "  ./b/c", "file:a"])
def test_an_address_is_noticed(address):
    assert ADDRESS.search(f"a==1\n{address}\n")


@pytest.mark.parametrize("lock", HASHED, ids=lambda lock: lock.stem)
def test_every_requirement_is_one_version_with_hashes(lock):
    for requirement, entry in pins(lock.read_text()).items():
        assert re.match(r"[a-z0-9-]+==[\w.!+]+( ;|$)", requirement), requirement
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), requirement


def test_the_development_lock_contains_the_main_lock():
    main, dev = (pins(lock.read_text()) for lock in HASHED)
    names = {requirement.partition(" ;")[0] for requirement in main}
    assert names <= {requirement.partition(" ;")[0] for requirement in dev}


def test_the_tested_jax_is_pinned():
    assert "jax==0.11.2" in pins(HASHED[0].read_text())
