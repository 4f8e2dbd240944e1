"""The lock files pin every package by hash, and contain no address of a package index or folder."""

import re
from itertools import pairwise

import pytest

from tests.repository.modules import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
GROWING = [ROOT / "requirements" / name for name in ("main.txt", "dev.txt", "aot.txt")]
DEVICES = [ROOT / "requirements" / name for name in ("tpu.txt", "cuda.txt")]
HASHED = GROWING + DEVICES
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


@pytest.mark.parametrize(("smaller", "larger"), list(pairwise(GROWING)), ids=lambda lock: lock.stem)
def test_each_lock_contains_the_one_before(smaller, larger):
    names, more = ({pin.partition(" ;")[0] for pin in pins(lock.read_text())} for lock in (smaller, larger))
    assert names < more


@pytest.mark.parametrize("lock", DEVICES, ids=lambda lock: lock.stem)
def test_devices_run_the_versions_that_are_tested(lock):
    """Packages in both locks have one version, and the server's packages are among them."""

    def versions(file):
        return dict(pin.partition(" ;")[0].split("==") for pin in pins(file.read_text()))

    tested, found, server = versions(ROOT / "requirements" / "aot.txt"), versions(lock), versions(GROWING[0])
    assert {name: found[name] for name in found.keys() & tested} == {n: tested[n] for n in found.keys() & tested}
    assert {"fastapi", "uvicorn", "prometheus-client", "orjson", "jax"} <= found.keys() & server.keys()


def test_the_tested_jax_is_pinned():
    assert "jax==0.11.2" in pins(HASHED[0].read_text())
