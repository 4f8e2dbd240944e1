"""Host: known fields that jaxserve ignores or does not support, and what to use instead."""

from collections.abc import Mapping
from typing import Any

# Accepted and ignored: they concern accounts and billing of OpenAI's own service, and do not affect the response.
IGNORED = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention session_id "
    "verbosity".split()
)

_OFF = (0, 0.0)

# Known but not supported, except by endpoints that have such a field. Null and the values listed here request nothing
# and are accepted.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    # OpenAI
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "best_of": (1,),
    "suffix": ("",),
    "reasoning_effort": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    # vLLM
    "guided_decoding_backend": ("auto", "guidance"),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "logprob_token_ids": ([],),
    "thinking_token_budget": (-1,),
    "include_reasoning": (True, False),
    "repetition_detection": (),
    "watermarking": (False,),
    "stream_interval": (1,),
    "vllm_xargs": ({},),
    "kv_transfer_params": (),
    "mm_processor_kwargs": ({},),
    "documents": ([],),
    "lora_request": (),
    "prompt_embeds": (),
    "return_prompt_text": (False,),
    "chat_template_content_format": ("auto",),
    # SGLang
    "stop_regex": ([],),
    "separate_reasoning": (True, False),
    "stream_reasoning": (True,),
    "session_params": (),
    "return_hidden_states": (False,),
    "custom_logit_processor": (),
    "custom_params": (),
    "extra_key": (),
    # llama.cpp; fields of samplers that are off have their defaults there
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "mirostat": (0,),
    "mirostat_tau": (5, 5.0),
    "mirostat_eta": (0.1,),
    "typical_p": (1, 1.0),
    "dry_multiplier": _OFF,
    "dry_base": (1.75,),
    "dry_allowed_length": (2,),
    "dry_penalty_last_n": (-1, 0),
    "dry_sequence_breakers": (["\n", ":", '"', "*"],),
    "xtc_probability": _OFF,
    "xtc_threshold": (0.1,),
    "dynatemp_range": _OFF,
    "dynatemp_exponent": (1, 1.0),
    "top_n_sigma": (-1, -1.0),
    "samplers": (),
    "min_keep": (0,),
    "repeat_last_n": (-1,),
    "n_probs": (0,),
    "n_keep": (0,),
    "id_slot": (-1,),
    "t_max_predict_ms": (0, -1),
    "return_tokens": (False,),
    "timings_per_token": (False,),
    "post_sampling_probs": (False,),
    "reasoning_format": ("none", "auto"),
    "lora": ([],),
}

_INSTEAD = {
    "use structured_outputs with a structural_tag": "grammar_lazy grammar_triggers",
    "llguidance is the only one here": "guided_decoding_backend",
    "it goes with messages, to /v1/chat/completions": (
        "tools tool_choice parallel_tool_calls reasoning_effort include_reasoning separate_reasoning"
    ),
    "use tools": "functions",
    "use tool_choice": "function_call",
    "reasoning is streamed as it comes; leave it out of a response with include_reasoning": "stream_reasoning",
    "use reasoning_effort, or chat_template_kwargs where a template takes a budget": "thinking_token_budget",
    "the server's option --reasoning-parser, and separate_reasoning, say whether it is content": "reasoning_format",
    "use stop, which takes plain texts": "stop_regex",
    "use top_p, top_k or min_p": (
        "mirostat mirostat_tau mirostat_eta typical_p xtc_probability xtc_threshold dynatemp_range dynatemp_exponent "
        "top_n_sigma samplers min_keep"
    ),
    "use frequency_penalty, presence_penalty or repetition_penalty": (
        "dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers repetition_detection"
    ),
    "penalties cover the whole prompt and output, as with -1": "repeat_last_n",
    "use n": "best_of",
    "use logprobs": "n_probs",
    "use truncate_prompt_tokens": "n_keep",
    "use deadline_s": "t_max_predict_ms",
    "use return_token_ids": "return_tokens",
    "use cache_salt": "extra_key",
    "beams are searched in Python, by LLM.beam_search": "use_beam_search length_penalty",
    "name the adapter as the model": "lora_request lora",
    "some templates take chat_template_kwargs for it": "documents",
}
INSTEAD: Mapping[str, str] = {name: hint for hint, names in _INSTEAD.items() for name in names.split()}
