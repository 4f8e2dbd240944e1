"""Measured block sizes are found by their key, and a damaged file raises an error that names it."""

import json
from importlib import resources

import pytest

from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.tuned_blocks import TUNED, TuningError, parse, row_bucket, slug, tuned

DEVICE = "TPU v6 lite"
KEY = {
    "kind": "decode",
    "num_rows": 64,
    "page_size": 64,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_dim": 128,
    "dtype": "bfloat16",
    "pool_dtype": "bfloat16",
}
ENTRY = {**KEY, "block": {"positions": 512, "rows": 4}, "time_us": 101.5}


@pytest.fixture
def folder(tmp_path):
    file = tmp_path / "tpu_v6_lite" / "paged_attention.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"op": "paged_attention", "device_kind": DEVICE, "entries": [ENTRY]}))
    return tmp_path


def test_what_was_measured_is_found(folder):
    assert tuned("paged_attention", DEVICE, KEY, folder) == {"positions": 512, "rows": 4}
    assert BlockSizes(**tuned("paged_attention", DEVICE, KEY, folder)).positions == 512


def test_the_nearest_number_of_rows_serves(folder):
    file = folder / "tpu_v6_lite" / "paged_attention.json"
    entries = [
        {**ENTRY, "num_rows": rows, "block": {"positions": positions}} for rows, positions in ((4, 128), (64, 256))
    ]
    file.write_text(json.dumps({"op": "paged_attention", "entries": entries}))
    found = {rows: tuned("paged_attention", DEVICE, {**KEY, "num_rows": rows}, folder) for rows in (1, 4, 15, 17, 500)}
    assert {rows: sizes["positions"] for rows, sizes in found.items()} == {1: 128, 4: 128, 15: 128, 17: 256, 500: 256}


def test_rows_are_measured_in_powers_of_two():
    assert [row_bucket(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]


@pytest.mark.parametrize("name", sorted(KEY.keys() - {"num_rows"}))
def test_any_other_key_finds_nothing(folder, name):
    other = {"kind": "chunks", "dtype": "float32", "pool_dtype": "int8"}.get(name, 1000)
    assert tuned("paged_attention", DEVICE, {**KEY, name: other}, folder) is None


def test_another_device_finds_nothing(folder):
    assert tuned("paged_attention", "TPU v5 lite", KEY, folder) is None
    assert slug("NVIDIA H100 80GB HBM3") == "nvidia_h100_80gb_hbm3"


def test_changing_an_answer_does_not_change_the_next(folder):
    tuned("paged_attention", DEVICE, KEY, folder)["positions"] = 1
    assert tuned("paged_attention", DEVICE, KEY, folder)["positions"] == 512


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"page_size": 0}, "page_size=0"),
        ({"page_size": True}, "page_size=True"),
        ({"num_rows": 48}, "num_rows=48"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"kind": "prefill"}, "kind='prefill'"),
        ({"block": {}}, "block={}"),
        ({"block": {"positons": 512}}, "positons"),
        ({"block": {"positions": 500}}, "positions=500"),
        ({"block": {"positions": 512.0}}, "positions=512.0"),
        ({"surprise": 1}, "must be an object with the keys"),
    ],
)
def test_a_damaged_entry_is_named(change, message):
    content = {"op": "paged_attention", "entries": [ENTRY, {**ENTRY, "num_rows": 8, **change}]}
    with pytest.raises(TuningError, match=r"here\.json: entry 1: ") as error:
        parse("paged_attention", content, "here.json")
    assert message in str(error.value)


def test_two_entries_with_one_key_are_refused():
    with pytest.raises(TuningError, match="entry 1: another entry has the same key"):
        parse("paged_attention", {"op": "paged_attention", "entries": [ENTRY, ENTRY]}, "here.json")


@pytest.mark.parametrize("text", ["", "[]", '{"op": "page_ops", "entries": []}', '{"op": "paged_attention"}'])
def test_a_damaged_file_is_named(folder, text):
    file = folder / "tpu_v5" / "paged_attention.json"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(TuningError, match=r"tpu_v5/paged_attention\.json"):
        tuned("paged_attention", "TPU v5", KEY, folder)


def test_a_key_of_other_fields_is_a_mistake_of_the_caller(folder):
    with pytest.raises(ValueError, match="num_rows"):
        tuned("paged_attention", DEVICE, {"page_size": 64}, folder)
    with pytest.raises(ValueError, match="op='attention' is unknown"):
        tuned("attention", DEVICE, KEY, folder)


def test_the_files_of_the_package_can_be_read():
    for file in TUNED.glob("*/*.json"):
        assert parse(file.stem, json.loads(file.read_text()), str(file))


def test_the_folder_is_part_of_the_package():
    assert (resources.files("pallas_kernels") / "tuned" / "README.md").is_file()
