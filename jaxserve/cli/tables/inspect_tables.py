"""Wiring: the report of `jaxserve inspect` as tables."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from jaxserve.analysis.device_fit import DeviceFit
from jaxserve.analysis.inspect_model import Inspection
from jaxserve.cli.tables.report_tables import byte_text, plain_table, print_report
from jaxserve.core.hardware.device_specs import GPU_SHARE


def show(found: Inspection) -> None:
    """Prints the report on standard output."""
    notes = (
        f"JAX takes {GPU_SHARE:.0%} of a GPU's memory unless XLA_PYTHON_CLIENT_MEM_FRACTION is set.",
        "Lower bound: the time to read the weights once at full bandwidth; real decode steps take longer.",
    )
    print_report((_model(found), _parts(found), _kv(found), _fits(found)), notes)


def _model(found: Inspection) -> Table:
    a, tokenizer = found.architecture, found.tokenizer
    table = plain_table(found.model, "", "", shows_header=False)
    context = f"{a.max_position:,} tokens"
    if found.max_model_len != a.max_position:
        context = f"{found.max_model_len:,} of {context}"
    rows = {
        "family": a.family,
        "parameters": f"{found.num_params:,}",
        "layers": f"{a.num_layers}: " + "; ".join(_kind(kind) for kind in a.kinds),
        "sizes": f"model {a.d_model:,}, MLP {a.d_mlp:,} ({a.activation})",
        "heads": f"{a.num_heads} query, {a.num_kv_heads} key-value, dimension {a.head_dim}",
        "vocabulary": f"{a.vocab_size:,}, head {'tied to the embedding' if a.is_tied else 'not tied'}",
        "context": context,
        "tokenizer": "none",
    }
    if tokenizer is not None:
        eos = ", ".join(f"{i} {piece!r}" for i, piece in tokenizer.eos.items()) or "none"
        template = "with" if tokenizer.has_chat_template else "without"
        rows["tokenizer"] = f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {template} a chat template, end {eos}"
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _kind(kind: Any) -> str:
    sees = "the whole context" if kind.window is None else f"a window of {kind.window:,}"
    scaled = ", scaled" if kind.is_rope_scaled else ""
    return f"{kind.num_layers} {kind.name} ({sees}, rope base {kind.rope_base:,.0f}{scaled})"


def _parts(found: Inspection) -> Table:
    stored = "no file" if found.stored_bytes is None else ", ".join(found.stored_types)
    loaded = found.dtype if found.quantization is None else f"{found.quantization} codes"
    table = plain_table(
        f"Weights: {stored}; loaded as {loaded}, norms as float32", "part", "parameters", "in the file", "loaded"
    )
    for part in found.parts:
        table.add_row(part.name, f"{part.num_params:,}", byte_text(part.stored_bytes), byte_text(part.loaded_bytes))
    sizes = map(byte_text, (found.stored_bytes, found.loaded_bytes))
    table.add_row("all", f"{found.num_params:,}", *sizes, style="bold")
    return table


def _kv(found: Inspection) -> Table:
    kv = found.kv
    lengths = [f"{n:,} tokens" for n in kv.sequence_bytes]
    title = f"KV memory on one device: {kv.bytes_per_token:,} bytes per token ({found.dtype}, pages of {kv.page_size})"
    table = plain_table(title, "KV groups", "bytes per token", "kept", *lengths)
    for group in kv.groups:
        kept = "all" if group.window is None else f"last {group.window:,}"
        name = f"{group.num_groups} × {group.layers_per_group} {group.kind} layers"
        table.add_row(name, f"{group.bytes_per_token:,}", kept, *[""] * len(lengths))
    table.add_row("one sequence", "", "", *(byte_text(n) for n in kv.sequence_bytes.values()), style="bold")
    table.add_row("", "", "", *(f"{n:,} pages" for n in kv.sequence_pages.values()))
    return table


def _fits(found: Inspection) -> Table:
    lengths = list(found.fits[0].sequences)
    share = f"{found.memory_utilization:.0%} of the memory that JAX takes"
    title = f"Fitting devices, with {share}; bytes and pages of one device, the longest context, sequences at once"
    columns = ["devices", "memory", "weights", "room for KV", "pages", "context"]
    table = plain_table(title, "", *columns, *(f"sequences of {n:,}" for n in lengths), "lower bound of a step")
    for fit in _smallest(found.fits):
        row = [fit.device, str(fit.num_devices), byte_text(fit.memory_bytes), byte_text(fit.weight_bytes)]
        if fit.does_fit:
            counts = (fit.num_pages, fit.max_model_len, *fit.sequences.values())
            row += [byte_text(fit.kv_bytes), *(f"{n:,}" for n in counts)]
        else:
            row += ["does not fit", *[""] * (2 + len(lengths))]
        floor = "" if fit.step_floor_s is None else f"{fit.step_floor_s * 1e3:.2f} ms"
        table.add_row(*row, floor)
    return table


def _smallest(fits: Iterable[DeviceFit]) -> list[DeviceFit]:
    """For each device the smallest number on which the model fits, or the largest number tried."""
    chosen: dict[str, DeviceFit] = {}
    for fit in fits:
        if fit.device not in chosen or not chosen[fit.device].does_fit:
            chosen[fit.device] = fit
    return list(chosen.values())
