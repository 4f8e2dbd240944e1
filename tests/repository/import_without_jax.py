"""A program that imports each module named on the command line while jax is blocked, and prints those that fail.

Each import runs in a fork of a process that has loaded large dependencies and nothing of the project, so that no module
depends on what another module has imported.
"""

import importlib
import os
import sys

BLOCKED = ("jax", "jaxlib", "flax", "optax", "orbax", "chex")
LOADED_ONCE = ("numpy", "pydantic", "rich.progress", "starlette.applications", "tokenizers", "tqdm", "uvicorn")


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
    for dependency in LOADED_ONCE:
        importlib.import_module(dependency)
    results = [imports(name) for name in sys.argv[1:]]
    sys.exit(not all(results))
