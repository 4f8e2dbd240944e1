"""The fake runner verifies every plan: a row's prefix must be in the pages of its tables."""

import dataclasses

import numpy as np
import pytest

from jaxserve.core.device_ops import AdapterLoad, Forks
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.runner.fake.fake_pool import PagingError
from jaxserve.runner.fake.fake_runner import FakeRunner
from tests.support.fakes.fake_adapters import FakeAdapters
from tests.support.fakes.fake_engine import MODEL, Driver, make_request, make_scheduler


def two_plans(windows=(None,)):
    """A prompt of six tokens in pages of four, and its first decode; with a runner that has run the prompt."""
    scheduler = make_scheduler(windows)
    scheduler.add(make_request("a", 6, 9))
    scheduler.add(make_request("b", 6, 9, seed=1))
    prompt, decode = Driver(scheduler).steps(2)
    runner = FakeRunner(MODEL, KVGroups(windows, 4), num_slots=8, num_pages=200, max_model_len=64)
    runner.submit(prompt)
    return runner, decode


def changed(plan, name: str, row: int, value: int):
    array = getattr(plan, name).copy()
    array[row] = value
    return dataclasses.replace(plan, **{name: array})


def with_page(plan, row: int, column: int, page: int):
    table = plan.tables[0].copy()
    table[row, column] = page
    return dataclasses.replace(plan, tables=(table, *plan.tables[1:]))


def test_a_right_plan_runs():
    runner, decode = two_plans()
    runner.submit(decode)
    assert runner.num_computed == 14


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda plan: with_page(plan, 0, 0, 9), "not what the sequence wrote"),
        (lambda plan: with_page(plan, 0, 0, int(plan.tables[0][1, 0])), "not what the sequence wrote"),
        (lambda plan: with_page(plan, 0, 1, int(plan.tables[0][1, 1])), "not what the sequence wrote"),
        (lambda plan: with_page(plan, 0, 1, 0), "scratch page"),
        (lambda plan: dataclasses.replace(plan, first_pages=plan.first_pages + 1), "not in the table"),
        (lambda plan: changed(plan, "starts", 0, 5), "6 long, the row at 5"),
        (lambda plan: changed(plan, "epochs", 0, 5), "a new sequence begins at"),
        (lambda plan: changed(plan, "slots", 0, 1), "two rows"),
        (lambda plan: dataclasses.replace(plan, step_id=3), "not the next one"),
        (lambda plan: dataclasses.replace(plan, num_decodes=1), "out of order"),
    ],
)
def test_a_wrong_plan_is_found_out(wrong, message):
    runner, decode = two_plans()
    with pytest.raises(PagingError, match=message):
        runner.submit(wrong(decode))


def test_groups_do_not_take_each_others_pages():
    runner, decode = two_plans((None, None))
    with pytest.raises(PagingError, match="not what the sequence wrote"):
        runner.submit(dataclasses.replace(decode, tables=decode.tables[::-1]))


ADAPTER = SAMPLING_INDEX["adapter"]


def two_plans_with_an_adapter():
    """As `two_plans`; the first row has an adapter, and the load of its pages is returned, too."""
    source = FakeAdapters(num_adapters=2)
    scheduler = make_scheduler(adapters=source, max_loras=2)
    while not source.prepare(1):
        source.take_error(1)
    scheduler.add(make_request("a", 6, 9, adapter=source.adapters[1]))
    scheduler.add(make_request("b", 6, 9, seed=1))
    prompt, decode = Driver(scheduler).steps(2)
    runner = FakeRunner(MODEL, KVGroups((None,), 4), num_slots=8, num_pages=200, max_model_len=64)
    runner.submit(prompt)
    (load,) = prompt.ops_of(AdapterLoad)
    return runner, decode, load


def with_adapter(plan, place: int, row: int = 0):
    sampling = plan.sampling.copy()
    sampling[row, ADAPTER] = place
    return dataclasses.replace(plan, sampling=sampling)


def with_adapter_page(plan, load):
    """The other row, which has none, writes into a page of the adapter."""
    row = int(np.flatnonzero(plan.sampling[:, ADAPTER] == 0)[0])
    return with_page(plan, row, 1, int(load.pages[0]))


def test_a_right_plan_with_an_adapter_runs():
    runner, decode, _ = two_plans_with_an_adapter()
    runner.submit(decode)
    other, plain = two_plans()
    other.submit(plain)
    drawn, plainly = runner.collect(0).tokens[:, 0], other.collect(0).tokens[:, 0]
    assert np.count_nonzero(drawn == plainly) == 1  # that of the row without one


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda plan, load: with_adapter(plan, 2), "there is none"),
        (lambda plan, load: with_adapter(plan, 0), "a row's adapter changes"),
        (lambda plan, load: with_adapter(plan, 1, row=1), "a row's adapter changes"),
        (lambda plan, load: dataclasses.replace(plan, has_adapters=False), "there is none"),
        (with_adapter_page, "(overwritten|not what the sequence wrote)"),
        (
            lambda plan, load: dataclasses.replace(
                plan, ops=(Forks(plan.tables[0][1, :1], load.pages[:1], *np.zeros((2, 0), np.int32)),)
            ),
            "its pages have been overwritten",
        ),
    ],
)
def test_a_wrong_adapter_is_found_out(wrong, message):
    runner, decode, load = two_plans_with_an_adapter()
    with pytest.raises(PagingError, match=message):
        runner.submit(wrong(decode, load))


def test_outcomes_come_in_the_order_of_submission():
    runner, decode = two_plans()
    runner.submit(decode)
    with pytest.raises(PagingError, match="must be collected before"):
        runner.collect(1)


def test_a_draw_depends_on_seed_sample_position_and_prefix():
    model = FakeModel(vocab_size=1000)
    cases = {(prefix, seed, index, at) for prefix in (1, 2) for seed in (3, 2**63) for index in (0, 1) for at in (5, 6)}
    drawn = {case: model.draw(*case, lambda token: True) for case in cases}
    assert len(set(drawn.values())) > 12
    assert drawn == {case: model.draw(*case, lambda token: True) for case in cases}


def test_chances_of_stopping_and_of_bad_logits_are_kept():
    model = FakeModel(stop_id=3, stop_chance=0.2, bad_chance=0.1)
    drawn = [model.draw(prefix, 0, 0, 0, lambda token: True) for prefix in range(4000)]
    assert np.isclose(drawn.count(None) / 4000, 0.1, atol=0.02)
    assert np.isclose(drawn.count(3) / 4000, 0.9 * 0.2, atol=0.02)


def test_nothing_allowed_is_bad_logits():
    assert MODEL.draw(1, 2, 3, 4, lambda token: False) is None
    assert MODEL.draw(1, 2, 3, 4, lambda token: token == 77) == 77
