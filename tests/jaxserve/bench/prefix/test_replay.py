"""Replays through the prefix cache: the hits, the best possible hits, and errors for invalid traces."""

import json

import numpy as np
import pytest

from jaxserve.bench.prefix.prefix_trace import conversations, read_unit_trace
from jaxserve.bench.prefix.replay import farthest, num_units, replay, unlimited
from jaxserve.cli.main import main
from jaxserve.core.errors import RequestError
from jaxserve.kv.eviction_policies import EVICTION_POLICIES

ROWS = conversations(num_systems=5, num_users=40, num_turns=6, seed=3)


def naive_hits(rows) -> int:
    """The longest prefix that each row shares with an earlier row, by brute force."""
    seen, hits = set(), 0
    for row in rows:
        beginnings = [tuple(row[: i + 1].tolist()) for i in range(len(row))]
        hits += sum(beginning in seen for beginning in beginnings)
        seen.update(beginnings)
    return hits


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_with_room_for_all_every_unit_that_came_before_is_found(policy):
    found = replay(ROWS, policy, num_units(ROWS))
    assert found.num_hit == unlimited(ROWS) == naive_hits(ROWS) == farthest(ROWS, num_units(ROWS))
    assert found.num_evicted == 0


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_with_less_room_nobody_finds_more_than_who_knows_the_future(policy, share):
    capacity = round(share * num_units(ROWS))
    found, best = replay(ROWS, policy, capacity), farthest(ROWS, capacity)
    assert 0 < found.num_hit < best < unlimited(ROWS)
    assert found.num_evicted > 0


def test_least_recently_used_is_what_its_name_says():
    """With rows of one unit the cache is a plain list in the order of use."""
    units = np.random.default_rng(0).zipf(1.3, 4000) % 300
    order, hits = [], 0
    for unit in units.tolist():
        hits += unit in order
        order = [*(u for u in order if u != unit), unit][-50:]
    assert replay([np.array([unit], np.int32) for unit in units], "lru", 50).num_hit == hits


def test_a_row_longer_than_the_cache_is_left_out():
    rows = [np.arange(3, dtype=np.int32), np.arange(10, 30, dtype=np.int32), np.arange(3, dtype=np.int32)]
    assert replay(rows, "lru", 5).num_hit == farthest(rows, 5) == 3


@pytest.mark.parametrize(
    "line", ["", "[]", '{"hash_ids": []}', '{"hash_ids": [1, -2]}', '{"hash_ids": [1.5]}', '{"hash_ids": [true]}', "{"]
)
def test_a_line_that_is_no_request_is_named(tmp_path, line):
    file = tmp_path / "trace.jsonl"
    file.write_text('{"hash_ids": [1, 2]}\n' + line + "\n")
    with pytest.raises(RequestError, match="line 2"):
        read_unit_trace(file)


@pytest.mark.parametrize(("content", "message"), [(b"", "no requests"), (b"\xff\xfe\n", "line 1")])
def test_a_file_that_is_no_trace_is_refused(tmp_path, content, message):
    file = tmp_path / "trace.jsonl"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=message):
        read_unit_trace(file)


@pytest.mark.parametrize("flags", [["--seed", "-1"], ["--capacity", "0"], ["--unit", "0"], ["--trace", "/nowhere"]])
def test_a_bad_flag_is_refused_by_name(flags, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "prefix", *flags])
    assert flags[0] in capsys.readouterr().err


def test_an_id_after_other_ids_than_before_is_named(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text('{"hash_ids": [1, 2]}\n{"hash_ids": [3, 2]}\n')
    with pytest.raises(RequestError, match="line 2: id 2"):
        read_unit_trace(file)


def test_the_verb_reports_a_trace(tmp_path, capsys):
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    trace.write_text("".join(json.dumps({"timestamp": 0, "hash_ids": row.tolist()}) + "\n" for row in ROWS))
    arguments = ["--trace", str(trace), "--capacity", "0.2", "1", "--json", str(out), "--quiet"]
    assert main(["bench", "prefix", *arguments]) == 0
    record = json.loads(out.read_text())
    assert record["num_hit_unlimited"] == unlimited(ROWS)
    assert [(r["share"], r["policy"]) for r in record["replays"]] == [
        (s, p) for s in (0.2, 1.0) for p in EVICTION_POLICIES
    ]
    assert f"{unlimited(ROWS) * 512:,}" in capsys.readouterr().out


def test_requests_that_a_cache_cannot_hold_are_counted_and_too_small_a_cache_is_refused(tmp_path, capsys):
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    rows = [[0, 1], [2, 3, 4, 5, 6], [0, 1]]
    trace.write_text("".join(json.dumps({"timestamp": 0, "hash_ids": row}) + "\n" for row in rows))
    arguments = ["bench", "prefix", "--trace", str(trace), "--json", str(out), "--quiet", "--capacity"]
    assert main([*arguments, "0.5", "1"]) == 0
    record = json.loads(out.read_text())
    assert {(replay["capacity"], replay["num_skipped"]) for replay in record["replays"]} == {(4, 1), (7, 0)}
    assert "1 requests are longer than a cache of 4 units" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments, "0.1"]) == 2
    assert "a cache of 1 units holds no request, of 2 or more" in capsys.readouterr().err
