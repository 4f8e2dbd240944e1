"""A program that imports each module named on the command line while jax is blocked, and prints those that fail.

Each import runs in a fork of a process that has loaded numpy and nothing of the project, so that no module depends on
what another module has imported.
"""

import importlib
import os
import sys

import numpy  # noqa: F401  (loaded once, before the forks)

BLOCKED = ("jax", "jaxlib", "flax", "optax", "orbax", "chex")


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not for Host modules")


def imports(name: str) -> bool:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocker())
    results = [imports(name) for name in sys.argv[1:]]
    sys.exit(not all(results))
