"""The ratio is relative to the best batch size over all rounds, and a busy machine is reported."""

import sys

import pytest

from scripts.benchmarks.compare import alternating_runs as rounds
from scripts.benchmarks.compare import comparison_page
from scripts.benchmarks.compare.alternating_runs import Round
from scripts.benchmarks.compare.compare_throughput import figures
from scripts.benchmarks.compare.comparison import agreement, compare


def side(rate: float, tokens: list[list[int]]) -> dict:
    return {"output_throughput": rate, "memory": {"rss_bytes": 2**30}, "tokens": tokens}


def other(seconds: dict[str, float], tokens: list[list[int]]) -> dict:
    sizes = {size: {"elapsed_s": s, "num_computed": 200, "tokens": tokens} for size, s in seconds.items()}
    return {"sizes": sizes, "rss_bytes": 2**29}


def compared(others_share: float = 0.01):
    tokens = [[1, 2], [3, 4]]
    rounds = [
        Round(side(40.0, tokens), other({"8": 5.0, "32": 10.0}, tokens), 0.0, others_share),
        Round(side(60.0, tokens), other({"8": 4.0, "32": 4.0}, tokens), 0.0, 0.0),
    ]
    return compare(rounds, num_output_tokens=100)


def test_the_ratio_is_against_the_best_size_over_all_rounds():
    comparison = compared()
    assert comparison.best.name == "transformers, batches of 8"
    assert comparison.best.rates == [20.0, 25.0]
    assert comparison.ratio == pytest.approx(50 / 22.5)
    assert comparison.round_ratios == pytest.approx([2.0, 2.4])
    assert comparison.fastest_ratio == pytest.approx(60 / 25)
    assert comparison.best.useful_share == 0.5


@pytest.mark.parametrize(("share", "is_busy"), [(0.01, False), (0.2, True)])
def test_a_busy_machine_is_reported(share, is_busy):
    lines = comparison_page.ratio_lines(compared(share))
    assert lines.startswith("ratio 2.22: 50.0 output tokens/s against 22.5")
    assert "by round: 2.00, 2.40; of each side's fastest round: 2.40." in lines
    assert ("busy machine" in lines) == is_busy


def test_the_side_that_goes_first_changes(monkeypatch):
    ran = []
    monkeypatch.setattr(rounds, "_run", lambda command, spec: (ran.append(command[0]) or {"by": command[0]}, 0.0))
    for is_ours_first in (True, False):
        found = rounds.run_round({}, "oracle", is_ours_first=is_ours_first)
        assert found.transformers == {"by": "oracle"} != found.jaxserve
    assert ran == [sys.executable, "oracle", "oracle", sys.executable]


def test_local_paths_are_reduced_to_their_last_part(tmp_path):
    path = str(tmp_path / "a.gguf")
    assert [comparison_page.without_folder(word) for word in (path, f"--out={path}")] == ["a.gguf", "--out=a.gguf"]
    for word in ("org/name", "--model=org/name/file.gguf", "--rounds", "16:256", "pypi:a==1#member=b/c.gguf"):
        assert comparison_page.without_folder(word) == word


def test_the_record_of_a_round_has_neither_tokens_nor_paths(tmp_path):
    options = {"tokenizer": str(tmp_path / "t"), "max_num_seqs": 4}
    sizes = {"8": {"elapsed_s": 5.0, "tokens": [[1]]}}
    found = figures({"model": str(tmp_path / "a.gguf"), "options": options, "sizes": sizes, "tokens": [[1]]})
    assert found == {
        "model": "a.gguf",
        "options": {"tokenizer": "t", "max_num_seqs": 4},
        "sizes": {"8": {"elapsed_s": 5.0}},
    }


def test_agreement_counts_tokens_before_the_first_difference():
    assert agreement([[1, 2, 3], [4, 5]], [[1, 2, 3], [4, 5]]) == (1.0, 1.0)
    assert agreement([[1, 2, 3], [4, 5]], [[1, 9, 3], [4, 5]]) == (0.5, 3 / 5)
