"""A program that imports each module named on the command line while jax is blocked, and prints those that fail."""

import importlib
import sys

BLOCKED = ("jax", "jaxlib", "flax", "optax", "orbax", "chex")


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not for Host modules")


def imports(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocker())
    results = [imports(name) for name in sys.argv[1:]]
    sys.exit(not all(results))
