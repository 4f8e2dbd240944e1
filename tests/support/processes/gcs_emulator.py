"""A local emulator of Google Cloud Storage."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def emulated_bucket(name: str) -> Iterator[None]:
    """An empty bucket; the usual clients are configured to use it."""
    import gcsfs
    from gcp_storage_emulator.server import create_server

    server = create_server("localhost", 0, in_memory=True, default_bucket=name)
    server.start()
    port = server._api._httpd.server_address[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        gcsfs.GCSFileSystem.clear_instance_cache()
        yield
        gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()
