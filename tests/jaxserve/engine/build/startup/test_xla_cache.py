"""The folder of JAX's executables: the option's, the one that JAX is configured with, or the user's own."""

import jax
import numpy as np
import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.startup import xla_cache
from jaxserve.engine.build.startup.xla_cache import use_compilation_cache
from tests.support.compiled.compilation_cache import cache_events, cache_restored

CONFIGURED = "/configured"  # nothing is compiled while it is set


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    """As in a process whose JAX has no folder configured."""
    with cache_restored():
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setattr(xla_cache, "_choice", xla_cache._Choice())
        for name in ("JAXSERVE_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        yield


def chosen(**options) -> str | None:
    use_compilation_cache(EngineConfig.create("m", **options))
    return jax.config.jax_compilation_cache_dir


def test_the_default_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chosen() == str(tmp_path / ".cache/jaxserve/compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert chosen() == str(tmp_path / "caches/jaxserve/compiled")
    monkeypatch.setenv("JAXSERVE_CACHE", "/scratch")
    assert chosen() == "/scratch/compiled"


def test_jax_keeps_its_configured_folder_unless_an_option_names_another(monkeypatch, tmp_path):
    """JAX reads JAX_COMPILATION_CACHE_DIR into this setting when it is imported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    jax.config.update("jax_compilation_cache_dir", CONFIGURED)
    assert chosen() == CONFIGURED
    assert chosen(compilation_cache_dir="/my/own") == "/my/own"
    assert chosen() == CONFIGURED
    assert chosen(compiled="/out") == "/out/cache"
    assert chosen() == CONFIGURED
    jax.config.update("jax_compilation_cache_dir", "/another")
    assert chosen() == "/another"
    with pytest.raises(ConfigError, match="of its own"):
        chosen(compiled="/out", compilation_cache_dir="/my/own")


def test_each_engine_of_a_process_uses_its_own_folder(tmp_path):
    """JAX itself keeps the folder of its first use."""
    kept = {}
    for name in ("first", "second", "first"):
        chosen(compilation_cache_dir=str(tmp_path / name))
        with cache_events() as events:
            jax.jit(lambda x: x * 3 + 1)(np.arange(7))
        kept.setdefault(name, []).append(dict(events))
    assert [list((tmp_path / name).glob("*-cache")) != [] for name in kept] == [True, True]
    assert all(first["cache_misses"] and not first.get("cache_hits") for first, *_ in kept.values())
    assert kept["first"][1]["cache_hits"]
    assert not kept["first"][1].get("cache_misses")
