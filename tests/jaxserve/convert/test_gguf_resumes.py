"""An interrupted `jaxserve quantize` to GGUF goes on after the last complete tensor, and ends with the file of a run in
one go."""

import os
import signal
import subprocess
import sys
import time

import pytest

from checkpoints.errors import CheckpointError
from checkpoints.sources import SourceError, resolve
from checkpoints.writing import write_blocks
from checkpoints.writing.reverse_rules import TensorBuilder
from tests.checkpoints.doubled_models import doubled
from tests.jaxserve.convert.test_convert_to_gguf import quantize
from tests.repository.modules import ROOT


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a model, the file that it becomes in one go)."""
    folder = tmp_path_factory.mktemp("whole")
    source = doubled("llama2", folder / "model")
    return source, quantize(source, folder / "m.gguf", "q4_0")


@pytest.fixture
def built(monkeypatch):
    """The tensors that are computed, of which the one of this number in `stop_at` ends the run."""
    names, build = [], TensorBuilder.build

    def noting(self, tensor):
        if len(names) == noting.stop_at:
            raise KeyboardInterrupt
        names.append(tensor.info.name)
        return build(self, tensor)

    noting.stop_at = None
    monkeypatch.setattr(TensorBuilder, "build", noting)
    return names, noting


def interrupted(built, path, source, scheme, stop_at):
    names, maker = built
    maker.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        quantize(source, path, scheme)
    maker.stop_at = None
    return names


@pytest.mark.parametrize("stop_at", [1, 4, 9])
def test_complete_tensors_are_not_computed_again_and_the_file_is_the_same(whole, built, tmp_path, stop_at):
    source, expected = whole
    out = tmp_path / "m.gguf"
    names = interrupted(built, out, source, "q4_0", stop_at)
    assert len(names) == stop_at
    assert not out.exists()
    with pytest.raises(SourceError, match="is neither a"):
        resolve(str(tmp_path / "m.gguf.partial"))
    with pytest.raises(SourceError):
        resolve(str(tmp_path))
    quantize(source, out, "q4_0")
    assert len(names) == len(set(names)), "each is computed once"
    assert out.read_bytes() == expected.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_a_matrix_in_pieces_that_is_half_written_is_written_again(whole, tmp_path, monkeypatch):
    source, expected = whole
    out, pieces_of = tmp_path / "m.gguf", write_blocks.pieces_of

    def half(values):
        if values.shape[0] == 96:  # gate and up
            yield values[: len(values) // 2]
            raise KeyboardInterrupt
        yield from pieces_of(values)

    with monkeypatch.context() as context:
        context.setattr(write_blocks, "pieces_of", half)
        with pytest.raises(KeyboardInterrupt):
            quantize(source, out, "q4_0")
    assert (tmp_path / "m.gguf.partial").stat().st_size > 0
    quantize(source, out, "q4_0")
    assert out.read_bytes() == expected.read_bytes()


def test_another_conversion_does_not_go_on_with_it(whole, built, tmp_path):
    source, out = whole[0], tmp_path / "m.gguf"
    names = interrupted(built, out, source, "q8_0", 4)
    with pytest.raises(CheckpointError, match=r"different conversion \(different header, scheme\).* --overwrite"):
        quantize(source, out, "q4_0")
    assert len(names) == 4
    quantize(source, out, "q4_0", "--overwrite")
    assert len(names) > len(set(names)), "those that were complete are computed again"
    assert out.read_bytes() == whole[1].read_bytes()


SLOWLY = """
import sys, time
from checkpoints.writing.reverse_rules import TensorBuilder
build = TensorBuilder.build
def slowly(*args):
    time.sleep(0.05)
    return build(*args)
TensorBuilder.build = slowly
from jaxserve.cli.quantize import run
sys.exit(run(sys.argv[1:]))
"""


def test_a_killed_process_is_gone_on_with(whole, built, tmp_path):
    source, expected = whole
    out, record = tmp_path / "m.gguf", tmp_path / "m.gguf.partial.json"
    command = [sys.executable, "-c", SLOWLY, source, out, "--scheme", "q4_0", "--quiet"]
    child = subprocess.Popen(list(map(str, command)), env={**os.environ, "PYTHONPATH": str(ROOT)})
    limit_s = time.monotonic() + 120
    while not (record.is_file() and '"num_parts": 3' in record.read_text()) and time.monotonic() < limit_s:
        assert child.poll() is None, "the command ended before it could be killed"
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    quantize(source, out, "q4_0")
    assert not {"token_embd.weight", "output_norm.weight"} & {*built[0]}
    assert out.read_bytes() == expected.read_bytes()
