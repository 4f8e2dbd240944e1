"""The benchmark's tables match its records, its errors state a remedy, and its help needs no jax."""

import json
import sys
from dataclasses import replace
from functools import partial

import pytest

from scripts.benchmarks.kernels import bench_kernel, compile_rpa, rpa_checkout
from scripts.benchmarks.kernels.inner_loops import find_inner
from scripts.benchmarks.kernels.kernel_tables import static_rows
from scripts.benchmarks.kernels.kernels_page import page
from scripts.benchmarks.kernels.static_figures import OURS, Figures
from scripts.benchmarks.kernels.tpu_chips import CHIPS
from scripts.benchmarks.kernels.tpu_schedule import Kernel, Loop
from scripts.benchmarks.kernels.workload_names import KNOWN
from scripts.benchmarks.report_page import as_markdown, as_text

SLOTS = {"MXU": 256, "EUP": 40, "VLOAD:FILL": 3, "VSTORE:SPILL": 2}


def figures(bundles: int = 1000, row_bundles: int = 200) -> Figures:
    loops = (
        Loop("1", row_bundles, 0, 0, dict.fromkeys(SLOTS, 0), {}),
        Loop("1.1", bundles, 0, 0, SLOTS, {"hbm_to_vmem": (8, 2**21)}),
    )
    capacity = {"MXU": 2, "EUP": 1, "VLOAD:FILL": 3, "VSTORE:SPILL": 2}
    kernel = Kernel("paged_attention_decode", loops, capacity, 4_000_000, 35_000, ((2, 8, 512, 256), (8, 8, 128)))
    return Figures(OURS, KNOWN["llama3_8b_decode_64x8k"], "v6e", find_inner(kernel, 8, 256), 1000)


def test_time_is_the_longer_of_bundles_and_bytes():
    """64 rows of 16 blocks of 1000 and 200: 0.59 ms at 1.75 GHz; 2.1 GB at 1.64 TB/s are 1.31 ms."""
    quick, slow = figures(), figures(bundles=4000)
    assert CHIPS["v6e"].clock_hz == pytest.approx(1.75e9, rel=1e-2)
    assert quick.compute_s == pytest.approx(64 * 16200 / CHIPS["v6e"].clock_hz)
    assert quick.memory_s == pytest.approx(1.31e-3, rel=1e-2)
    assert quick.call_s == quick.memory_s
    assert quick.mbu == pytest.approx(1)
    assert slow.call_s == slow.compute_s > slow.memory_s
    assert slow.mbu == pytest.approx(slow.memory_s / slow.compute_s)


def test_a_window_shortens_both():
    whole = figures()
    windowed = replace(whole, workload=replace(whole.workload, window=1024))
    assert windowed.compute_s < whole.compute_s / 4
    assert windowed.memory_s < whole.memory_s / 4


def test_tables_hold_the_records():
    heading, row = static_rows([figures().record()])
    cells = dict(zip(heading, row, strict=True))
    assert cells["bundles per 512 × 8"] == "1,000"
    assert cells["MXU busy"] == "13%"
    assert cells["DMAs per block"] == "8 of 256 kB"
    assert cells["fills, spills"] == "3, 2"
    assert len({len(line) for line in as_text([heading, row]).splitlines()}) == 1
    assert as_markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_the_page_says_that_nothing_ran():
    text = page([figures().record()], ["a note"], ["llama3_8b_decode_64x8k", "--target", "v6e"], "0123456789ab")
    assert "**The kernels have not been run on a TPU.**" in text
    assert "`scripts/bench_kernel llama3_8b_decode_64x8k --target v6e`" in text
    assert "- a note" in text
    assert "0123456789ab" in text
    assert "## Decode" in text
    assert "## Prefill" not in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["llama9"], "there is no workload llama9"),
        (["smollm2_decode", "--target", "v6e", "--rpa", "/nowhere"], "is no checkout of https://github.com"),
    ],
)
def test_mistakes_are_told(argv, message, capsys):
    assert bench_kernel.main(argv) == 2
    assert message in capsys.readouterr().err


def test_help_needs_no_jax(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SystemExit) as exit_:
        bench_kernel.main(["--help"])
    assert exit_.value.code == 0
    assert "llama3_8b_decode_64x8k" in capsys.readouterr().out


def test_rpa_is_asked_only_what_it_can_do():
    assert rpa_checkout.reason_against(KNOWN["llama3_8b_decode_64x8k"]) is None
    for name in ("smollm2_decode_128x1k", "llama3_8b_trees_64x8", "llama3_8b_decode_64x8k_int8"):
        assert rpa_checkout.reason_against(KNOWN[name])


@pytest.fixture
def no_import_of_rpa_is_left():
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "tpu_inference"]:
        del sys.modules[name]


@pytest.mark.usefixtures("no_import_of_rpa_is_left")
def test_of_rpa_only_its_kernel_is_imported(tmp_path):
    folder = tmp_path / rpa_checkout.KERNEL.parent
    folder.mkdir(parents=True)
    for package in (folder, *folder.relative_to(tmp_path).parents):
        (tmp_path / package / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "util.py").write_text("answer = 42")
    module = compile_rpa.MODULE.rpartition(".")[0]
    (folder / "kernel.py").write_text(f"from {module}.util import answer")
    rpa_checkout.check(tmp_path)
    assert compile_rpa.import_rpa(tmp_path).answer == 42


def test_measuring_here_gives_times_and_shares(tmp_path, monkeypatch):
    from scripts.benchmarks.kernels import measure_kernel

    monkeypatch.setattr(
        measure_kernel, "seconds_of", partial(measure_kernel.seconds_of, sampling=measure_kernel.Sampling(0, 1))
    )
    monkeypatch.setattr(measure_kernel, "ceilings", lambda is_small: {"bytes_per_s": 1e10, "ops_per_s": 1e11})
    file = tmp_path / "figures.json"
    assert bench_kernel.main(["smollm2_decode", "--json", str(file)]) == 0
    (record,) = json.loads(file.read_text())["records"]
    assert 0 < record["call_s"] < 1
    assert record["mbu"] == pytest.approx(record["bytes"] / record["call_s"] / 1e10)
