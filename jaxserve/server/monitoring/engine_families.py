"""Host: what an engine tells Prometheus: once under vLLM's names, which dashboards, autoscalers and gateways read, and
once under `jaxserve:`. What vLLM calls a request is a sample of one here, unless the text says otherwise."""

import time
from collections.abc import Iterator

from prometheus_client.core import Metric

from jaxserve.engine.serving.engine_info import EngineInfo
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.scheduler.stats import SchedulerStats
from jaxserve.server.monitoring.prometheus import PrometheusFamilies

FINISH_REASONS = ("stop", "length", "abort", "timeout", "error")
BOUNDS = {"max_num_queued_reqs": "max_num_waiting", "max_num_queued_tokens": "max_waiting_tokens"}  # vLLM's, ours
HISTOGRAMS = {
    "iteration_tokens_total": ("step_tokens", "Tokens computed per step."),
    "request_prompt_tokens": ("prompt_tokens", "Prompt tokens per request, independent of n."),
    "request_generation_tokens": ("generated_tokens", "Generated tokens per finished sample."),
    "request_params_n": ("params_n", "The parameter n of requests."),
    "request_params_max_tokens": ("params_max_tokens", "The parameter max_tokens of requests that set it."),
    "request_num_preemptions": ("preemptions", "Preemptions per sample."),
    "time_to_first_token_seconds": ("first_token", "From arrival to a sample's first token."),
    "inter_token_latency_seconds": ("inter_token", "Between consecutive tokens of a sample."),
    "request_time_per_output_token_seconds": ("time_per_token", "Mean time per token of a sample after its first."),
    "request_queue_time_seconds": ("queue_time", "From arrival to a sample's first slot."),
    "request_prefill_time_seconds": ("prefill_time", "From a sample's first slot to its first token."),
    "request_decode_time_seconds": ("decode_time", "From a sample's first token to its last."),
    "request_inference_time_seconds": ("inference_time", "From a sample's first slot to its end."),
    "e2e_request_latency_seconds": ("latency", "From arrival to a sample's end."),
}


def shared_families(
    make: PrometheusFamilies, meters: EngineMetrics, info: EngineInfo, stats: SchedulerStats
) -> Iterator[Metric]:
    """Those that have a name of vLLM's. May be read while the engine's thread runs: nothing waits for it."""
    load, num_waiting = meters.load, meters.num_waiting
    waiting = {"capacity": num_waiting - load.num_deferred, "deferred": load.num_deferred}
    finished = {reason: meters.finished[reason] for reason in FINISH_REASONS}
    refused = {name: meters.refused[own] for name, own in BOUNDS.items()}
    yield make.gauge("num_requests_running", "Samples in the running batch.", load.num_running)
    yield make.gauge("num_requests_waiting", "Samples in the queue.", num_waiting)
    text = "Samples in the queue: for lack of capacity, or deferred until another has computed their shared prefix."
    yield make.gauge("num_requests_waiting_by_reason", text, waiting, "reason")
    usage = _num_held(info, stats) / info.num_pages
    yield make.gauge("kv_cache_usage_perc", "Fraction of the KV pages held by sequences, 0 to 1.", usage)
    yield make.counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", meters.num_queried)
    yield make.counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", meters.num_hit)
    yield make.counter("num_preemptions", "Preemptions of running samples.", stats.num_preemptions)
    yield make.counter("admission_rejections", "Requests rejected by a full queue.", refused, "reason")
    yield make.counter("prompt_tokens", "Tokens of processed prompts, once per request.", meters.num_prompt_tokens)
    yield make.counter("prompt_tokens_cached", "Tokens of processed prompts found in the prefix cache.", meters.num_hit)
    yield make.counter("generation_tokens", "Generated tokens.", meters.num_generated_tokens)
    yield make.counter("request_success", "Finished samples by finish reason.", finished, "finished_reason")
    yield make.counter("corrupted_requests", "Samples that ended with finish reason error.", finished["error"])
    for name, (attribute, text) in HISTOGRAMS.items():
        yield make.histogram(name, text, getattr(meters, attribute))
    yield make.info("cache_config_info", "Configuration of the KV pool, in labels.", _cache_config(info))
    adapters = {"max_lora": "0", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    yield make.info("lora_requests_info", "Adapters, in labels; the value is the current time.", adapters, time.time())


def own_families(
    make: PrometheusFamilies, meters: EngineMetrics, info: EngineInfo, stats: SchedulerStats, stalled_s: float
) -> Iterator[Metric]:
    """Those that nobody else has."""
    held = {str(group): count for group, count in enumerate(stats.num_pages_held)}
    pages = {"free": stats.num_pages_free, "cached": stats.num_pages_cached, "held": _num_held(info, stats)}
    moved = {"evicted": stats.num_evicted, "saved": stats.num_saved, "loaded": stats.num_loaded}
    text = "Pages of the pool: free, cached for later requests, or held by sequences."
    yield make.gauge("kv_pages", text, pages, "state")
    yield make.gauge("kv_pages_held", "Pages held by sequences per KV group; a shared page counts once.", held, "group")
    yield make.gauge("kv_host_pages", "Pages in use in host memory.", stats.num_pages_host)
    yield make.counter("kv_pages_moved", "Pages evicted, saved to host memory, and loaded from it.", moved, "way")
    yield make.gauge("tokens_per_second", "Generated tokens per second, over the last seconds.", meters.tokens_per_s)
    text = "Seconds without a finished step while requests run."
    yield make.gauge("engine_stalled_seconds", text, stalled_s)


def _num_held(info: EngineInfo, stats: SchedulerStats) -> int:
    return max(0, info.num_pages - stats.num_pages_free - stats.num_pages_cached)


def _cache_config(info: EngineInfo) -> dict[str, str]:
    """In blocks as vLLM counts them: of as many tokens as fit when all sequences are of full length, whatever the
    number of KV groups that have a page for each."""
    num_blocks = round(info.max_concurrency * -(-info.max_model_len // info.page_size))
    return {
        "block_size": str(info.page_size),
        "num_gpu_blocks": str(num_blocks),
        "kv_cache_size_tokens": str(num_blocks * info.page_size),
        "kv_cache_max_concurrency": f"{info.max_concurrency:.4g}",
        "enable_prefix_caching": str(info.has_prefix_cache),
    }
