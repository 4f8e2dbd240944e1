from jaxserve.core.options import engine_config
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from pallas_kernels import dispatch


def test_an_engine_offers_the_kernels_back_ends():
    """Defined twice, because a Host module cannot import the kernels."""
    assert engine_config.BACKENDS == dispatch.BACKENDS


def test_an_engine_offers_the_caches_policies():
    """Defined twice, because `core` is below `kv` in the import order."""
    assert sorted(engine_config.PREFIX_EVICTIONS) == sorted(EVICTION_POLICIES)
