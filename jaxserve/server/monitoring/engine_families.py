"""Host: `engine_families`: the engine's Prometheus metrics: under vLLM's names, which dashboards, autoscalers and
gateways read, and under `jaxserve:`. Where vLLM counts requests these count samples, unless the text differs."""

import time
from collections.abc import Iterator

from prometheus_client.core import Metric

from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.server.monitoring.prometheus import PrometheusFamilies

FINISH_REASONS = ("stop", "length", "abort", "timeout", "error")
QUEUE_LIMITS = {"max_num_queued_reqs": "max_num_waiting", "max_num_queued_tokens": "max_waiting_tokens"}  # vLLM's, ours
HISTOGRAMS = {
    "iteration_tokens_total": (
        "step_tokens",
        "Prompt and generated tokens per step; a prompt counts in the step of its first token.",
    ),
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


def engine_families(engine: EngineClient, model_name: str) -> Iterator[Metric]:
    """All metrics of one engine, read without waiting for its thread."""
    labels, families = {"model_name": model_name, "engine": "0"}, _EngineFamilies(engine)
    for prefix in ("vllm:", "jaxserve:"):
        yield from families.shared(PrometheusFamilies(prefix, labels))
    yield from families.own(PrometheusFamilies("jaxserve:", labels))


class _EngineFamilies:
    """The metrics of one scrape. The scheduler's counters are read once, so that the metrics agree with one another."""

    def __init__(self, engine: EngineClient):
        self._engine, self._stats = engine, engine.stats()

    def shared(self, make: PrometheusFamilies) -> Iterator[Metric]:
        """The metrics that vLLM has, too."""
        engine, stats, metrics = self._engine, self._stats, self._engine.metrics
        load, num_waiting = metrics.load, metrics.num_waiting
        waiting = {"capacity": num_waiting - load.num_deferred, "deferred": load.num_deferred}
        finished = {reason: metrics.finished[reason] for reason in FINISH_REASONS}
        refused = {name: metrics.refused[own] for name, own in QUEUE_LIMITS.items()}
        yield make.gauge("num_requests_running", "Samples in the running batch.", load.num_running)
        yield make.gauge("num_requests_waiting", "Samples in the queue.", num_waiting)
        text = "Samples in the queue: for lack of capacity, or deferred until another has computed their shared prefix."
        yield make.gauge("num_requests_waiting_by_reason", text, waiting, "reason")
        usage = stats.num_pages_referenced / engine.info.num_pages
        yield make.gauge("kv_cache_usage_perc", "Fraction of the KV pages held by sequences, 0 to 1.", usage)
        yield make.counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", metrics.num_queried)
        yield make.counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", metrics.num_hit)
        yield make.counter("num_preemptions", "Preemptions of running samples.", stats.num_preemptions)
        yield make.counter("admission_rejections", "Requests rejected by a full queue.", refused, "reason")
        yield make.counter("prompt_tokens", "Tokens of processed prompts, once per request.", metrics.num_prompt_tokens)
        yield make.counter(
            "prompt_tokens_cached", "Tokens of processed prompts found in the prefix cache.", metrics.num_hit
        )
        yield make.counter("generation_tokens", "Generated tokens.", metrics.num_generated_tokens)
        yield make.counter("request_success", "Finished samples by finish reason.", finished, "finished_reason")
        yield make.counter("corrupted_requests", "Samples that ended with finish reason error.", finished["error"])
        drafts = metrics.drafts
        by_position = {str(position): count for position, count in sorted(drafts.accepted_by_position.items())}
        yield make.counter("spec_decode_num_drafts", "Passes of a sample with draft tokens.", drafts.num_drafts)
        yield make.counter("spec_decode_num_draft_tokens", "Draft tokens.", drafts.num_tokens)
        yield make.counter("spec_decode_num_accepted_tokens", "Accepted draft tokens.", drafts.num_accepted)
        yield make.counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted draft tokens by position in the draft.",
            by_position,
            "position",
        )
        for name, (attribute, text) in HISTOGRAMS.items():
            yield make.histogram(name, text, getattr(metrics, attribute))
        yield make.info("cache_config_info", "Configuration of the KV pool, in labels.", _cache_config(engine))
        text = "Adapters of samples with a slot, and of those without, in labels; the value is the current time."
        yield make.info("lora_requests_info", text, _adapters(engine), time.time())

    def own(self, make: PrometheusFamilies) -> Iterator[Metric]:
        """The metrics that vLLM does not have."""
        engine, stats = self._engine, self._stats
        held = {str(group): count for group, count in enumerate(stats.num_pages_referenced_by_group)}
        pages = {"free": stats.num_pages_free, "cached": stats.num_pages_cached, "held": stats.num_pages_referenced}
        moved = {"evicted": stats.num_evicted, "saved": stats.num_saved, "loaded": stats.num_loaded}
        text = "Pages of the pool: free, cached for later requests, or held by sequences."
        yield make.gauge("kv_pages", text, pages, "state")
        yield make.gauge(
            "kv_pages_held", "Pages held by sequences per KV group; a shared page counts once.", held, "group"
        )
        yield make.gauge("kv_host_pages", "Pages in use in host memory.", stats.num_pages_host)
        yield make.counter("kv_pages_moved", "Pages evicted, saved to host memory, and loaded from it.", moved, "way")
        adapters = {
            "registered": sum(1 for _ in engine.adapters),
            "host": engine.adapters.num_resident,
            "device": stats.num_adapters,
        }
        yield make.gauge("lora_adapters", "Adapters: registered, in host memory, and on the device.", adapters, "place")
        copied = {"loaded": stats.num_adapters_loaded, "evicted": stats.num_adapters_evicted}
        yield make.counter("lora_adapters_moved", "Adapters copied to the device, and evicted from it.", copied, "way")
        yield make.gauge(
            "tokens_per_second", "Generated tokens per second, over the last seconds.", engine.metrics.tokens_per_s
        )
        text = "Seconds without a finished step while requests run."
        yield make.gauge("engine_stalled_seconds", text, engine.health().stalled_s)


def _adapters(engine: EngineClient) -> dict[str, str]:
    """Their names between commas, as vLLM writes them. max_lora: how many the device holds at once."""
    running, waiting = engine.metrics.adapter_names()
    return {
        "max_lora": str(engine.adapters.max_loras),
        "running_lora_adapters": ",".join(running),
        "waiting_lora_adapters": ",".join(waiting),
    }


def _cache_config(engine: EngineClient) -> dict[str, str]:
    """In vLLM's blocks: as many as hold the tokens that fit when all sequences have full length, independent of the
    number of KV groups, each of which has its own page for the same tokens."""
    info = engine.info
    num_blocks = round(info.max_concurrency * -(-info.max_model_len // info.page_size))
    return {
        "block_size": str(info.page_size),
        "num_gpu_blocks": str(num_blocks),
        "kv_cache_size_tokens": str(num_blocks * info.page_size),
        "kv_cache_max_concurrency": f"{info.max_concurrency:.4g}",
        "enable_prefix_caching": str(info.has_prefix_cache),
    }
