"""Host: what an engine tells Prometheus: once under vLLM's names, which dashboards, autoscalers and gateways read, and
once under `jaxserve:`. What vLLM calls a request is a sample of one here, unless the text says otherwise."""

import time
from collections.abc import Iterator

from prometheus_client.core import Metric

from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.server.monitoring.prometheus import PrometheusFamilies

FINISH_REASONS = ("stop", "length", "abort", "timeout", "error")
BOUNDS = {"max_num_queued_reqs": "max_num_waiting", "max_num_queued_tokens": "max_waiting_tokens"}  # vLLM's, ours
HISTOGRAMS = {
    "iteration_tokens_total": ("step_tokens", "Tokens computed in a step."),
    "request_prompt_tokens": ("prompt_tokens", "Tokens of a request's prompt, whatever its n."),
    "request_generation_tokens": ("generated_tokens", "Tokens that a sample has at its end."),
    "request_params_n": ("params_n", "Samples that a request asked for."),
    "request_params_max_tokens": ("params_max_tokens", "The max_tokens that a request named."),
    "request_num_preemptions": ("preemptions", "Times that a sample lost its slot."),
    "time_to_first_token_seconds": ("first_token", "From the call to a sample's first token."),
    "inter_token_latency_seconds": ("inter_token", "From token to token of a sample."),
    "request_time_per_output_token_seconds": ("time_per_token", "Mean time of a sample's tokens after its first."),
    "request_queue_time_seconds": ("queue_time", "From the call to a sample's first slot."),
    "request_prefill_time_seconds": ("prefill_time", "From a sample's first slot to its first token."),
    "request_decode_time_seconds": ("decode_time", "From a sample's first token to its last."),
    "request_inference_time_seconds": ("inference_time", "From a sample's first slot to its end."),
    "e2e_request_latency_seconds": ("latency", "From the call to a sample's end."),
}


def shared_families(make: PrometheusFamilies, meters: EngineMetrics, scheduler: Scheduler) -> Iterator[Metric]:
    """Those that have a name of vLLM's. May be read while the engine's thread runs: nothing waits for it."""
    load, num_waiting = meters.load, meters.num_waiting
    waiting = {"capacity": num_waiting - load.num_deferred, "deferred": load.num_deferred}
    finished = {reason: meters.finished[reason] for reason in FINISH_REASONS}
    refused = {name: meters.refused[own] for name, own in BOUNDS.items()}
    yield make.gauge("num_requests_running", "Samples in the running batch.", load.num_running)
    yield make.gauge("num_requests_waiting", "Samples in the queue.", num_waiting)
    text = "Samples in the queue, for want of room or (deferred) until another has computed what they share."
    yield make.gauge("num_requests_waiting_by_reason", text, waiting, "reason")
    yield make.gauge("kv_cache_usage_perc", "Share of the KV pages that sequences hold, 0 to 1.", _usage(scheduler))
    yield make.counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", meters.num_queried)
    yield make.counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", meters.num_hit)
    yield make.counter("num_preemptions", "Times that running samples lost their slot.", scheduler.num_preemptions)
    yield make.counter("admission_rejections", "Requests that a full queue has turned away.", refused, "reason")
    yield make.counter("prompt_tokens", "Tokens of computed prompts, once a request.", meters.num_prompt_tokens)
    yield make.counter("prompt_tokens_cached", "Of these, found in the prefix cache.", meters.num_hit)
    yield make.counter("generation_tokens", "Tokens drawn.", meters.num_generated_tokens)
    yield make.counter("request_success", "Samples that have ended, by finish reason.", finished, "finished_reason")
    yield make.counter("corrupted_requests", "Samples that ended in an error of their own.", finished["error"])
    for name, (attribute, text) in HISTOGRAMS.items():
        yield make.histogram(name, text, getattr(meters, attribute))
    yield make.info("cache_config_info", "The KV pool.", _cache_config(scheduler))
    adapters = {"max_lora": "0", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    yield make.info("lora_requests_info", "Adapters; the value is now.", adapters, time.time())


def own_families(
    make: PrometheusFamilies, meters: EngineMetrics, scheduler: Scheduler, stalled_s: float
) -> Iterator[Metric]:
    """Those that nobody else has."""
    pool, state = scheduler.state.pool, scheduler.state
    held = {str(group): count for group, count in enumerate(scheduler.num_pages_held)}
    pages = {"free": pool.num_free, "cached": pool.num_cached, "held": max(0, pool.num_referenced)}
    host, prefixes = state.host, state.prefixes
    moved = {
        "evicted": 0 if prefixes is None else prefixes.num_evicted,
        "saved": 0 if host is None else host.num_saved,
        "loaded": 0 if host is None else host.num_loaded,
    }
    yield make.gauge("kv_pages", "Pages of the pool: free, cached for whoever begins alike, or held.", pages, "state")
    yield make.gauge("kv_pages_held", "Pages held by KV group, shared ones once a group.", held, "group")
    yield make.gauge("kv_host_pages", "Pages in host memory.", 0 if host is None else host.num_used)
    yield make.counter("kv_pages_moved", "Pages evicted, saved to host memory, and loaded from it.", moved, "way")
    yield make.gauge("tokens_per_second", "Tokens drawn in the last seconds.", meters.tokens_per_s)
    text = "Seconds without a finished step while there is work."
    yield make.gauge("engine_stalled_seconds", text, stalled_s)


def _usage(scheduler: Scheduler) -> float:
    pool = scheduler.state.pool
    return max(0, pool.num_referenced) / (pool.num_pages - 1)


def _cache_config(scheduler: Scheduler) -> dict[str, str]:
    """In blocks as vLLM counts them: of as many tokens as fit when all sequences are of full length, whatever the
    number of KV groups that have a page for each."""
    state = scheduler.state
    groups, max_len = state.groups, state.limits.max_model_len
    concurrency = (state.pool.num_pages - 1) / sum(state.limits.table_widths(groups))
    num_blocks = round(concurrency * groups.end_page(max_len))
    return {
        "block_size": str(groups.page_size),
        "num_gpu_blocks": str(num_blocks),
        "kv_cache_size_tokens": str(num_blocks * groups.page_size),
        "kv_cache_max_concurrency": f"{concurrency:.4g}",
        "enable_prefix_caching": str(state.prefixes is not None),
    }
