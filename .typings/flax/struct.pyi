"""Frozen dataclasses as pytrees; flax leaves their types open."""

from typing import Any, dataclass_transform

def field(pytree_node: bool = True, *, default: Any = ..., metadata: Any = None) -> Any: ...
@dataclass_transform(field_specifiers=(field,), frozen_default=True)
def dataclass[T](clz: type[T]) -> type[T]: ...
