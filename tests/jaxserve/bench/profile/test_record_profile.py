"""A profile finds most of a step's time in the model's parts, and restores the engine."""

import pytest

from jaxserve import SamplingParams
from jaxserve.bench.profile.profile_report import tables
from jaxserve.bench.profile.record_profile import ProfileOptions, record
from jaxserve.core.errors import RequestError
from jaxserve.runner.runner import Runner
from tests.support.tiny_engines import tiny_engine


def options(**changes) -> ProfileOptions:
    values = {"num_steps": 6, "batch_size": 2, "input_len": 12, "params": SamplingParams(temperature=1.0), "seed": 0}
    return ProfileOptions(**{**values, **changes})


def test_time_by_scope_and_by_part_of_the_host(tmp_path):
    llm, said = tiny_engine("llama3"), []
    for _ in range(3):  # a process that has to wait for a core spends that time nowhere
        said.clear()
        report = record(llm, options(), tmp_path, said.append)
        if all(program["unnamed_ms"] < 0.2 * program["mean_ms"] for program in report["programs"]):
            break
    names = [program["name"] for program in report["programs"]]
    decode = next(program for program in report["programs"] if program["name"].startswith("decode"))
    assert set(names) <= set(llm.parts.runner.executables)
    assert sum(program["num_runs"] for program in report["programs"]) == 6
    assert {"layers/mlp", "layers/attention", "sample/head", "sample/draw", "unpack"} <= decode["scopes_ms"].keys()
    divided = sum(decode["scopes_ms"].values()) + decode["unnamed_ms"] + decode["between_ms"]
    assert divided == pytest.approx(decode["mean_ms"])
    assert decode["unnamed_ms"] < 0.2 * decode["mean_ms"]
    host_ms = report["host_ms"]
    assert {"step", "schedule", "submit", "wait", "collect", "commit"} <= host_ms.keys()
    assert 0 < sum(host_ms[name] for name in ("schedule", "submit", "commit")) < host_ms["whole"]
    assert len(said) == 4
    assert [table.row_count for table in tables(report)][: len(names)] == [
        len(p["scopes_ms"]) + 2 for p in report["programs"]
    ]
    assert list(tmp_path.rglob("*.xplane.pb"))
    assert not llm.output_processor.has_work
    assert isinstance(llm.parts.engine.runner, Runner)
    assert llm.parts.engine.observer is None


@pytest.mark.parametrize(
    ("changes", "named"), [({"batch_size": 9}, "--batch-size 9"), ({"num_steps": 120}, "--steps 120")]
)
def test_what_does_not_fit_the_engine_is_refused_by_name(changes, named, tmp_path):
    with pytest.raises(RequestError, match=named):
        record(tiny_engine("llama3"), options(**changes), tmp_path, print)
