"""Random operations on engines with the fake runner, in pools and with habits that each exercise another mechanism."""

from dataclasses import replace
from typing import Any

import numpy as np

from jaxserve.engine.loop.engine import Engine
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.costs.forced_chunks import ForcedChunks
from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.policy.policies import ByPriority
from tests.support.fakes.fake_adapters import FakeAdapters
from tests.support.fakes.fake_engine import make_engine
from tests.support.fakes.random_operations import Fuzz
from tests.support.fakes.scheduler_laws import AGEING_S

MODEL = FakeModel(stop_chance=0.03, bad_chance=0.002)

POOLS = {
    "ample": {"windows": (None,)},
    "small": {"windows": (None,), "num_pages": 17},
    "window": {"windows": (8, None), "num_pages": 40, "max_chunk_tokens": 7},
    "three groups": {"windows": (5, 9, None), "num_pages": 48, "max_num_batched_tokens": 12},
    "windows only, minimal": {"windows": (6,), "num_pages": 12, "max_num_batched_tokens": 8, "max_chunk_tokens": 4},
    "pages of one": {"windows": (None,), "num_pages": 70, "page_size": 1, "max_chunk_tokens": 1},
    "ample windows": {"windows": (4, 3), "num_pages": 300, "page_size": 8},
    "prefixes, ample": {"windows": (None,), "num_pages": 400, "prefix_eviction": "lru"},
    "prefixes, small": {"windows": (None,), "num_pages": 30, "prefix_eviction": "hits"},
    "prefixes, windows": {"windows": (8, None, 5), "num_pages": 70, "max_chunk_tokens": 7, "prefix_eviction": "hits"},
    "prefixes, windows only": {"windows": (6,), "num_pages": 16, "max_num_batched_tokens": 8, "prefix_eviction": "lru"},
    "host, small": {"windows": (None,), "num_pages": 30, "prefix_eviction": "hits", "num_host_pages": 200},
    "host, full": {"windows": (None,), "num_pages": 30, "prefix_eviction": "lru", "num_host_pages": 5},
    "host, windows": {"windows": (8, None, 5), "num_pages": 70, "prefix_eviction": "hits", "num_host_pages": 60},
    "prefixes, pages of one": {"windows": (None,), "num_pages": 70, "page_size": 1, "prefix_eviction": "hits"},
    "priorities, small": {"windows": (None,), "num_pages": 17, "policy": "priority"},
    "priorities, prefixes": {"windows": (None, 6), "num_pages": 48, "prefix_eviction": "hits", "policy": "priority"},
    "tenants, ample": {"windows": (None,), "policy": "fair"},
    "tenants, small": {"windows": (None,), "num_pages": 30, "max_num_batched_tokens": 12, "policy": "fair"},
    "tenants, prefixes": {"windows": (None, 6), "num_pages": 60, "prefix_eviction": "hits", "policy": "fair"},
    "drafts, ample": {"windows": (None,), "max_drafts": 3},
    "drafts, small": {"windows": (None,), "num_pages": 17, "max_drafts": 5},
    "drafts, windows": {"windows": (8, None), "num_pages": 40, "max_chunk_tokens": 7, "max_drafts": 4},
    "drafts, prefixes": {"windows": (None, 6), "num_pages": 48, "prefix_eviction": "hits", "max_drafts": 2},
    "streaming, ample": {"windows": (None,), "num_pages": 400, "sinks_and_window": (3, 9)},
    "streaming, small": {"windows": (None,), "num_pages": 18, "sinks_and_window": (2, 8)},
    "streaming, prefixes": {
        "windows": (None, 6, None),
        "num_pages": 60,
        "max_chunk_tokens": 7,
        "prefix_eviction": "hits",
        "num_host_pages": 60,
        "sinks_and_window": (4, 11),
    },
    "streaming, drafts": {"windows": (8, None), "num_pages": 44, "max_drafts": 3, "sinks_and_window": (0, 8)},
    "grammars, ample": {"windows": (None,), "num_pages": 400, "has_grammars": True},
    "grammars, small": {"windows": (None,), "num_pages": 17, "has_grammars": True},
    "grammars, prefixes": {"windows": (8, None), "num_pages": 48, "prefix_eviction": "hits", "has_grammars": True},
    "grammars, drafts": {"windows": (None,), "num_pages": 40, "max_drafts": 3, "has_grammars": True},
    "drafts, pages of one": {"windows": (None,), "num_pages": 66, "page_size": 1, "max_drafts": 3},
    "grammars, drafts, ample": {"windows": (8, None), "num_pages": 400, "max_drafts": 5, "has_grammars": True},
    "adapters, ample": {
        "windows": (None,),
        "num_pages": 400,
        "prefix_eviction": "lru",
        "max_loras": 8,
        "num_adapters": 20,
    },
    "adapters, small": {
        "windows": (None,),
        "num_pages": 30,
        "prefix_eviction": "hits",
        "policy": "fair",
        "max_loras": 3,
        "num_adapters": 40,
    },
    "adapters, streaming": {
        "windows": (8, None),
        "num_pages": 52,
        "prefix_eviction": "lru",
        "num_host_pages": 300,
        "sinks_and_window": (4, 11),
        "max_loras": 2,
        "num_adapters": 2,
    },
    "adapters, grammars, drafts": {
        "windows": (None,),
        "num_pages": 40,
        "max_drafts": 3,
        "has_grammars": True,
        "max_loras": 2,
        "num_adapters": 8,
    },
    "streaming, grammars": {
        "windows": (8, None),
        "num_pages": 52,
        "max_chunk_tokens": 3,
        "sinks_and_window": (4, 27),
        "has_grammars": True,
    },
    "drafts, long rows, ample windows": {
        "windows": (3, None),
        "num_pages": 600,
        "page_size": 1,
        "max_model_len": 200,
        "max_drafts": 5,
    },
    "drafts, short chunks, ample windows": {
        "windows": (8, None),
        "num_pages": 400,
        "max_model_len": 200,
        "max_chunk_tokens": 7,
        "max_drafts": 5,
    },
}


class RandomChunks(ForcedChunks):
    """Forced tokens are chunks or not, at random; chosen counts either."""

    def __init__(self, seed: int):
        super().__init__()
        self._rng, self.chosen = np.random.default_rng(seed), [0, 0]

    def choose(self, *args, **kwargs) -> bool:
        has_chunks = bool(self._rng.random() < 0.5)
        self.chosen[has_chunks] += 1
        return has_chunks


POLICIES_BY_NAME = {
    "priority": lambda: ByPriority(AGEING_S),
    "fair": lambda: FairShares(AGEING_S, {"a": 0.5, "b": 3.0}),
}
CALM = {"num_operations": 450, "abort_share": 0.1, "max_operations_a_step": 4}
QUIET = {"num_operations": 300, "abort_share": 0.2, "max_operations_a_step": 2, "max_quiet_steps": 16}
STORM = {"num_operations": 1600, "abort_share": 0.4, "max_operations_a_step": 16, "longest": 20}
HABITS = {"quiet": QUIET, "calm": CALM, "storm": STORM}


def make_pool_engine(pool: str, **options: Any) -> Engine:
    limits: dict[str, Any] = dict(POOLS[pool])
    if num_adapters := limits.pop("num_adapters", 0):
        limits["adapters"] = FakeAdapters(num_adapters, limits["max_loras"] + 1, num_unreadable=1)
    if "policy" in limits:
        limits = limits | {"policy": POLICIES_BY_NAME[limits["policy"]]()}
    return make_engine(**limits, **options)


def fuzz(pool: str, seed: int, *, num_operations: int, is_overlapped: bool = True, **habits) -> Fuzz:
    model = MODEL
    if "grammars, drafts" in pool:  # a forced token is not drawn, unless it was drafted: only then are its logits seen
        model = replace(MODEL, bad_chance=0.0)
    engine = make_pool_engine(pool, model=model)
    engine.is_overlapped = is_overlapped
    engine.scheduler.state.forced_chunks = RandomChunks(seed)
    fuzz = Fuzz(engine, seed, model=model, is_ample="ample" in pool, **habits)
    fuzz.run(num_operations)
    return fuzz


def check(pool: str, habits: str, done: Fuzz) -> None:
    """All outputs equal those of lone runs, all pages are free again, and the mechanism of the pool was exercised."""
    done.check_outputs()
    scheduler, watch = done.engine.scheduler, done.watch
    if scheduler.state.prefix_cache is not None:
        assert scheduler.state.prefix_cache.num_hit > 0
        scheduler.state.prefix_cache.clear()
    if (host := scheduler.state.connector) is not None:
        assert host.num_saved > 0
        assert host.num_loaded > 0
        assert host.num_used == 0  # with what was cleared
    stats = scheduler.stats
    assert stats.num_pages_free + stats.num_pages_adapters == scheduler.state.pool.num_pages - 1
    assert stats.num_pages_cached == stats.num_pages_adapters
    assert sum(scheduler.stats.num_pages_referenced_by_group) == 0
    assert watch.num_forks > 0
    assert (watch.num_drops > 0) == ("streaming" in pool)
    if "grammars" in pool:
        matchers = scheduler.state.constraints._matchers
        assert matchers.is_empty()
        assert matchers.num_forced > 0
        assert min(scheduler.state.forced_chunks.chosen) > 0 or habits == "storm"
        assert matchers.num_failed > 0 or "ample" not in pool
        assert min(matchers.num_legal, matchers.num_illegal) > 0 or "drafts" not in pool or habits == "storm"
        assert watch.num_forced_with_drafts > 0 or "drafts" not in pool
    if "adapters" in pool:
        _check_adapters(done)
        assert scheduler.state.adapters.gate._source.num_crowded > 0 or habits == "quiet" or "small" not in pool
    if "drafts" in pool:
        assert 0 < watch.num_accepted < watch.num_drafts
    if habits == "calm" or "ample" in pool:  # a short storm aborts too many requests to need preemption in every pool
        is_spared = "ample" in pool and "tenants" not in pool  # tenants are preempted for slots, too
        assert (scheduler.stats.num_preemptions == 0) == is_spared
    if habits == "quiet" and pool != "pages of one":  # there some sequence always waits for pages
        assert watch.num_hidden_steps > 0 or "grammars" not in pool or "drafts" in pool
        assert watch.num_rounds > watch.num_steps * (1.4 if "ample" in pool and "grammars, drafts" not in pool else 1)


def _check_adapters(done: Fuzz) -> None:
    """All are unpinned and without users; some were evicted, and some could not be read."""
    places = done.engine.scheduler.state.adapters
    assert places is not None
    source = places.gate._source
    assert source.is_empty()
    assert not places.gate._pinning
    assert source.num_failed > 0
    assert places.num_loaded >= places.num_evicted > 0
    assert all(not place.num_users for place in places.places.values())
