"""Host: `RadixTree`: token sequences in pages, and the KV pages kept for each common prefix.

    root ─ [p p p] ─ [p p]          a node is a run of pages up to where sequences branch
                   └ [p] ─ [p p p]

Only full pages are compared, so sequences that differ within a page branch before it. (Radix attention: Zheng et al.,
"SGLang: Efficient Execution of Structured Language Model Programs", section 3.)
"""

import hashlib
from collections.abc import Iterator

import numpy as np

Path = list[tuple["RadixNode", int]]
"""Nodes from the root on, each with the number of its pages in the path: all of them, except in the last node."""


class RadixNode:
    """A run of pages after those of its parent.

    start: pages before it. pages[g, j]: the page of KV group g for page start + j of the sequence, 0 if none is kept.
    last_use: the cache's time at the last use. num_hits: how often a sequence took over its pages. keys: see
    `RadixTree.keys`; empty until they are needed.
    """

    __slots__ = ("children", "keys", "last_use", "num_hits", "pages", "parent", "start", "tokens")

    def __init__(self, parent: "RadixNode | None", start: int, tokens: np.ndarray, pages: np.ndarray):
        self.parent, self.start, self.tokens, self.pages = parent, start, tokens, pages
        self.children: dict[bytes, RadixNode] = {}
        self.last_use = self.num_hits = 0
        self.keys: list[bytes] = []

    @property
    def num_pages(self) -> int:
        return self.pages.shape[1]

    @property
    def end(self) -> int:
        """Pages up to its end, including those before it."""
        return self.start + self.pages.shape[1]


class RadixTree:
    """One tree per namespace: only sequences of the same namespace share pages."""

    def __init__(self, num_groups: int, page_size: int):
        self.page_size = page_size
        self._nothing = np.zeros(0, np.int32), np.zeros((num_groups, 0), np.int32)
        self._roots: dict[object, RadixNode] = {}
        self._namespaces: dict[RadixNode, object] = {}  # of the roots

    def walk(self, namespace: object, tokens: np.ndarray) -> Path:
        """The longest path whose pages equal the full pages of `tokens`."""
        path: Path = []
        node, at, num_pages, size = self._roots.get(namespace), 0, len(tokens) // self.page_size, self.page_size
        while node is not None and at < num_pages:
            node = node.children.get(tokens[at * size : (at + 1) * size].tobytes())
            if node is None:
                break
            count = min(node.num_pages, num_pages - at)
            is_equal = node.tokens[: count * size] == tokens[at * size : (at + count) * size]
            if not is_equal.all():
                count = int(is_equal.argmin()) // size
            path.append((node, count))
            at += count
            if count < node.num_pages:
                break
        return path

    def add(self, namespace: object, parent: RadixNode | None, tokens: np.ndarray, pages: np.ndarray) -> RadixNode:
        """Add a node after its parent, or after the root if None: tokens int32[n x page size], pages int32[G, n]."""
        parent = self._root(namespace) if parent is None else parent
        child = RadixNode(parent, parent.end, tokens.copy(), pages.copy())
        parent.children[self._key(child)] = child
        return child

    def split(self, node: RadixNode, count: int) -> RadixNode:
        """The node of the first `count` pages; the others become its child."""
        assert 0 < count <= node.num_pages, "a path from before another split"
        if count == node.num_pages:
            return node
        size = count * self.page_size
        head = RadixNode(node.parent, node.start, node.tokens[:size], node.pages[:, :count].copy())
        head.last_use, head.num_hits = node.last_use, node.num_hits
        head.keys, node.keys = node.keys[:count], node.keys[count:]
        assert node.parent is not None, "the root has no pages"
        node.parent.children[self._key(head)] = head
        node.parent, node.start = head, head.end
        node.tokens, node.pages = node.tokens[size:], node.pages[:, count:].copy()
        head.children[self._key(node)] = node
        return head

    def cut(self, node: RadixNode, count: int) -> RadixNode | None:
        """Remove the last `count` pages of a leaf; returns its parent if that has thereby become a leaf."""
        left = node.num_pages - count
        if left:
            node.tokens, node.pages = node.tokens[: left * self.page_size], node.pages[:, :left]
            del node.keys[left:]
            return None
        parent, node.parent = node.parent, None
        assert parent is not None, "the root is not cut"
        del parent.children[self._key(node)]
        if parent.children:
            return None
        if parent not in self._namespaces:
            return parent
        del self._roots[self._namespaces.pop(parent)]
        return None

    def keys(self, node: RadixNode) -> list[bytes]:
        """For each page of the node a digest of the namespace and of all tokens up to the page's end."""
        unknown: list[RadixNode] = []
        at = node
        while at.parent is not None and not at.keys:
            unknown.append(at)
            at = at.parent
        for later in reversed(unknown):
            parent = later.parent
            assert parent is not None
            first = parent.keys[-1] if parent.keys else root_key(self._namespaces[parent])
            later.keys = list(page_keys(first, later.tokens, self.page_size))
        return node.keys

    def clear(self) -> None:
        """Remove all nodes."""
        for node in list(self):
            node.parent = None
        self._roots.clear()
        self._namespaces.clear()

    def __iter__(self) -> Iterator[RadixNode]:
        """All nodes except the roots."""
        waiting = [child for root in self._roots.values() for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node

    def _root(self, namespace: object) -> RadixNode:
        if namespace not in self._roots:
            root = self._roots[namespace] = RadixNode(None, 0, *self._nothing)
            self._namespaces[root] = namespace
        return self._roots[namespace]

    def _key(self, node: RadixNode) -> bytes:
        return node.tokens[: self.page_size].tobytes()


def root_key(namespace: object) -> bytes:
    """The key before the first page."""
    return hashlib.sha256(repr(namespace).encode()).digest()


def page_keys(before: bytes, tokens: np.ndarray, page_size: int) -> Iterator[bytes]:
    """The keys of the full pages of `tokens`, which follow the page with the key `before`."""
    key = before
    for end in range(page_size, len(tokens) + 1, page_size):
        key = hashlib.sha256(key + tokens[end - page_size : end].tobytes()).digest()
        yield key
