"""Headers of a hub model: tensors without values, small files only, and errors in one sentence."""

from types import SimpleNamespace

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from checkpoints.errors import CheckpointError, SourceError
from checkpoints.fetch.hf_hub_header import HubHeader, fetch_header
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.open_header import open_header


def file_metadata(**tensors):
    found = {name: SimpleNamespace(dtype=d, shape=list(s), data_offsets=o) for name, (d, s, o) in tensors.items()}
    return SimpleNamespace(tensors=found)


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A fake model of two weight files, with its small files in a folder, and the requested patterns."""
    asked = []

    def metadata(repo, **options):
        first = file_metadata(a=("BF16", (3, 4), (0, 24)))
        second = file_metadata(b=("F32", (5,), (24, 44)), c=("F32", (), (44, 48)))
        return SimpleNamespace(files_metadata={"model-1.safetensors": first, "model-2.safetensors": second})

    def snapshot(repo, **options):
        asked.append(options["allow_patterns"])
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", metadata)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return asked


def test_tensors_of_all_files_are_known_without_the_weights(remote, tmp_path):
    found = fetch_header("org/name", None, None, None)
    assert found is not None
    assert found.folder == tmp_path
    assert {name: (t.shape, t.dtype, t.nbytes) for name, t in found.tensors.items()} == {
        "a": ((3, 4), "BF16", 24), "b": ((5,), "F32", 20), "c": ((), "F32", 4)
    }  # fmt: skip
    assert not any("safetensors" in pattern for patterns in remote for pattern in patterns)


@pytest.fixture
def hub(monkeypatch):
    """The requested (URL, range), answered from a weight file of each name; without a file the answer is short."""
    asked, files = [], {}

    def get(url, headers, timeout):
        asked.append((url.rpartition("/")[2], headers["range"]))
        first, last = map(int, headers["range"].removeprefix("bytes=").split("-"))
        content = files.get(url.rpartition("/")[2], b"")[first : last + 1]
        return httpx2.Response(206, content=content, request=httpx2.Request("GET", url))

    monkeypatch.setattr(huggingface_hub.utils, "get_session", lambda: SimpleNamespace(get=get))
    return SimpleNamespace(asked=asked, files=files)


def test_values_of_single_tensors_are_requested_by_range(remote, hub):
    found = fetch_header("org/name", None, None, None)
    assert found is not None
    values = bytes(range(48))
    hub.files["model-2.safetensors"] = (9).to_bytes(8, "little") + b"{header} " + values
    assert found.read("b") == values[24:44]
    assert found.read("c") == values[44:48]
    ranges = ["bytes=0-7", "bytes=41-60", "bytes=61-64"]
    assert hub.asked == [("model-2.safetensors", each) for each in ranges]
    with pytest.raises(SourceError, match=r"the hub sent 0 of 8 bytes of org/name/model-1\.safetensors"):
        found.read("a")


def test_what_was_not_fetched_cannot_be_read(remote, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}')
    checkpoint = open_header("org/name", None, None, None)
    assert checkpoint is not None
    assert checkpoint.config == {"model_type": "llama"}
    with pytest.raises(CheckpointError, match="'a' has no values here"):
        checkpoint.file.read_rows("a", 0, 1)


@pytest.mark.parametrize("name", ["config.json", "quantize_config.json"])
def test_quantised_forms_that_would_not_load_are_refused(name, remote, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text('{"quantization_config": {"quant_method": "gptq"}}')
    with pytest.raises(CheckpointError, match="'gptq'"):
        open_header("org/name", None, None, None)


def test_scales_of_fp8_weights_are_not_tensors(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "fp8"}}')
    tensors = {"w": TensorInfo("w", (2, 3), "F8_E4M3", 6), "w_scale": TensorInfo("w_scale", (), "F32", 4)}
    monkeypatch.setattr("checkpoints.open_header.fetch_header", lambda *_: HubHeader(tmp_path, tensors, pytest.fail))
    checkpoint = open_header("org/name", None, None, None)
    assert checkpoint is not None
    assert list(checkpoint.tensors) == ["w"]
    del tensors["w_scale"]
    with pytest.raises(CheckpointError, match="w has 0 scales"):
        open_header("org/name", None, None, None)


def test_a_model_without_a_configuration_is_named(remote):
    with pytest.raises(CheckpointError, match=r"'org/name' has no config\.json"):
        open_header("org/name", None, None, None)


@pytest.mark.parametrize(
    "error",
    [errors.NotASafetensorsRepoError("no safetensors"), httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow")],
)
def test_models_of_other_formats_and_without_a_network_have_no_header_here(error, monkeypatch):
    def fails(repo, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", fails)
    assert open_header("org/name", None, None, None) is None


def test_failures_say_what_to_do(monkeypatch):
    def fails(repo, **options):
        raise errors.HFValidationError("bad")

    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", fails)
    with pytest.raises(SourceError, match="'org/name' is not a valid Hugging Face id"):
        fetch_header("org/name", None, None, None)
