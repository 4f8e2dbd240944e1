"""Device: `DeviceOps`: makes a plan's changes to pages and slots, several of one kind in a dispatch."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from jaxserve.core.device_ops import (
    AdapterLoad,
    CachedPrefix,
    DeviceOp,
    EarlierTokens,
    Forks,
    MaskUpload,
    PageDrops,
    PageLoad,
    PageSave,
    SlotEdits,
)
from jaxserve.runner.device_state import MAX_EDITS, DeviceState
from jaxserve.runner.host_pages import TRANSFER_PAGES, HostPages
from jaxserve.runner.programs.executables import Executables
from jaxserve.runner.programs.page_programs import copy_sinks, load_adapter, load_pages, save_pages
from jaxserve.runner.programs.program import Program
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.slot_programs import (
    EARLIER_TOKENS,
    EDIT_SLOTS,
    FORK_PAGES,
    FORK_SLOTS,
    PREFIX_SLOTS,
    fork,
    keep_earlier,
    set_counts,
    set_edits,
    set_history,
    set_masks,
)
from jaxserve.runner.sink_copies import MAX_COPIES, SinkCopies
from jaxserve.sampling.penalty_counts import count_tokens


class DeviceOps:
    """Arguments of the programs have fixed sizes: more ops take further calls, and slots that are left over are the
    scratch slot, pages the scratch page."""

    def __init__(self, programs: Programs, executables: Executables, host_pages: HostPages):
        self._programs, self._executables, self._host_pages = programs, executables, host_pages
        self._makers: dict[type, Callable[[DeviceState, list[Any]], DeviceState]] = {
            PageDrops: self._copy_sinks,
            PageSave: self._save_pages,
            PageLoad: self._load_pages,
            AdapterLoad: self._load_adapters,
            Forks: self._fork,
            SlotEdits: self._set_edits,
            MaskUpload: self._set_masks,
            CachedPrefix: self._set_prefixes,
            EarlierTokens: self._keep_earlier,
        }

    def make(self, state: DeviceState, ops: Sequence[DeviceOp]) -> DeviceState:
        """The state after all ops, in their order."""
        for kind, of_kind in groupby(ops, type):
            state = self._makers[kind](state, list(of_kind))
        return state

    def _run(self, describe: Callable[[Programs], Program], *args: Any) -> Any:
        """The results of a program, which has the name of the function that describes it."""
        return self._executables.get(describe.__name__, partial(describe, self._programs))(*args)

    def _copy_sinks(self, state: DeviceState, drops: list[PageDrops]) -> DeviceState:
        model = self._programs.settings.model.config
        ranges = [
            groups
            for kind, groups in zip(model.kinds, model.group_ranges, strict=True)
            if kind.attention.window is None
        ]
        for drop in drops:
            columns = np.stack([drop.sink_pages, drop.rest_pages, drop.own_pages, drop.num_dropped])
            kinds = [columns[:, (drop.groups >= start) & (drop.groups < end)] for start, end in ranges]
            for part in _parts(max(of_kind.shape[1] for of_kind in kinds), MAX_COPIES):
                padded: list[list[Any]] = [[_padded(c[part], MAX_COPIES, 0) for c in of_kind] for of_kind in kinds]
                state = self._run(copy_sinks, state, tuple(SinkCopies(*of_kind) for of_kind in padded))
        return state

    def _save_pages(self, state: DeviceState, saves: list[PageSave]) -> DeviceState:
        for save in saves:
            for part in _parts(len(save.pages), TRANSFER_PAGES):
                pages = _padded(save.pages[part], TRANSFER_PAGES, 0)
                state, content = self._run(save_pages, state, pages)
                self._host_pages.put(save.host_pages[part], content)
        return state

    def _load_pages(self, state: DeviceState, loads: list[PageLoad]) -> DeviceState:
        for load in loads:
            for part in _parts(len(load.pages), TRANSFER_PAGES):
                content = self._host_pages.get(_padded(load.host_pages[part], TRANSFER_PAGES, 0))
                pages = _padded(load.pages[part], TRANSFER_PAGES, 0)
                state = self._run(load_pages, state, pages, content)
        return state

    def _load_adapters(self, state: DeviceState, loads: list[AdapterLoad]) -> DeviceState:
        for load in loads:
            assert self._programs.adapter_table is not None
            place, table = np.int32(load.place), np.zeros(self._programs.adapter_table[1:], np.int32)
            table[: len(load.table)] = load.table
            for part in _parts(len(load.pages), TRANSFER_PAGES):
                content = load.content[:, part]
                content = np.pad(content, [(0, 0), (0, TRANSFER_PAGES - content.shape[1]), *[(0, 0)] * 3])
                pages = _padded(load.pages[part], TRANSFER_PAGES, 0)
                state = self._run(load_adapter, state, pages, content, place, table)
        return state

    def _fork(self, state: DeviceState, all_forks: list[Forks]) -> DeviceState:
        scratch = self._programs.num_slots
        no_pages, no_slots = np.zeros(FORK_PAGES, np.int32), np.full(FORK_SLOTS, scratch, np.int32)
        for forks in all_forks:
            for part in _parts(len(forks.src_pages), FORK_PAGES):
                pages = [_padded(a[part], FORK_PAGES, 0) for a in (forks.src_pages, forks.dst_pages)]
                state = self._run(fork, state, *pages, no_slots, no_slots)
            for part in _parts(len(forks.src_slots), FORK_SLOTS):
                slots = [_padded(a[part], FORK_SLOTS, scratch) for a in (forks.src_slots, forks.dst_slots)]
                state = self._run(fork, state, no_pages, no_pages, *slots)
        return state

    def _set_edits(self, state: DeviceState, all_edits: list[SlotEdits]) -> DeviceState:
        vocab, scratch = self._programs.vocab, self._programs.num_slots
        for part in _parts(len(all_edits), EDIT_SLOTS):
            edits = all_edits[part]
            slots = _padded(np.array([e.slot for e in edits]), EDIT_SLOTS, scratch)
            ids = np.full((EDIT_SLOTS, MAX_EDITS), vocab, np.int32)  # ids past the vocabulary are dropped
            bias, until = np.zeros(ids.shape, np.float32), np.zeros(ids.shape, np.int32)
            for row, e in enumerate(edits):
                count = len(e.ids)
                if count > MAX_EDITS:
                    raise ValueError(f"{count} logit edits in one slot exceed the capacity of {MAX_EDITS}")
                ids[row, :count], bias[row, :count], until[row, :count] = e.ids, e.bias, e.until
            state = self._run(set_edits, state, slots, ids, bias, until)
        return state

    def _set_masks(self, state: DeviceState, uploads: list[MaskUpload]) -> DeviceState:
        """In one dispatch, unless drafts have masks: else there are no more uploads in a step than slots."""
        programs, most = self._programs, self._programs.draw_sizes[-1]
        for part in _parts(len(uploads), most):
            sent = uploads[part]
            size = next(size for size in programs.draw_sizes if size >= len(sent))
            words = np.zeros((size, -(-programs.vocab // 32)), np.uint32)
            for i, upload in enumerate(sent):
                words[i, : len(upload.words)] = upload.words
            behind = programs.num_slots + programs.num_draft_masks + 1  # the row of padding
            rows = _padded(np.array([upload.row for upload in sent]), size, behind)
            execute = self._executables.get(f"set_masks[rows={size}]", partial(set_masks, programs, size))
            state = execute(state, rows, words)
        return state

    def _set_prefixes(self, state: DeviceState, prefixes: list[CachedPrefix]) -> DeviceState:
        scratch, vocab, history_len = self._programs.num_slots, self._programs.vocab, self._programs.history_len

        def slots_of(prefixes: list[CachedPrefix]) -> np.ndarray:
            return _padded(np.array([prefix.slot for prefix in prefixes]), PREFIX_SLOTS, scratch)

        counted = [prefix for prefix in prefixes if prefix.is_counted]
        for part in _parts(len(counted), PREFIX_SLOTS):
            lines = np.zeros((PREFIX_SLOTS, vocab), np.int16)
            for row, prefix in enumerate(counted[part]):
                lines[row] = count_tokens(prefix.tokens, prefix.prompt_len, vocab)
            state = self._run(set_counts, state, slots_of(counted[part]), lines)
        for part in _parts(len(prefixes) if history_len else 0, PREFIX_SLOTS):
            tokens, lens = np.zeros((PREFIX_SLOTS, history_len), np.int32), np.zeros(PREFIX_SLOTS, np.int32)
            for row, prefix in enumerate(prefixes[part]):
                lens[row] = len(prefix.tokens)
                tokens[row, : lens[row]] = prefix.tokens
            state = self._run(set_history, state, slots_of(prefixes[part]), tokens, lens)
        return state

    def _keep_earlier(self, state: DeviceState, texts: list[EarlierTokens]) -> DeviceState:
        places, tokens = (np.concatenate([getattr(text, name) for text in texts]) for name in ("places", "tokens"))
        owners = np.repeat([text.owner for text in texts], [len(text.tokens) for text in texts])
        for part in _parts(len(places), EARLIER_TOKENS):
            behind = self._programs.num_earlier_tokens  # which is dropped
            columns = ((places, behind), (tokens, 0), (owners, 0))
            padded = [_padded(column[part], EARLIER_TOKENS, fill) for column, fill in columns]
            state = self._run(keep_earlier, state, *padded)
        return state


def _parts(count: int, size: int) -> Iterator[slice]:
    """Slices of up to `size` of `count` entries."""
    return (slice(start, start + size) for start in range(0, count, size))


def _padded(values: np.ndarray, size: int, fill: int) -> np.ndarray:
    out = np.full(size, fill, np.int32)
    out[: len(values)] = values
    return out
