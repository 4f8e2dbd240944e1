"""Host: `StepLimits`: the token budget of a step, the longest sequence, and the pages that one sequence needs."""

from dataclasses import dataclass

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.request import Request
from jaxserve.kv.kv_policy import KVPolicy


@dataclass(frozen=True, slots=True)
class StepLimits:
    """max_num_batched_tokens: the token budget of a step. max_chunk_tokens: the longest prompt chunk in one step.

    kv_policy: of the requests that say so; None: all sequences keep all of their KV.
    has_late_drafts: rows with a grammar may draft.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_chunk_tokens: int
    max_model_len: int
    vocab_size: int
    kv_policy: KVPolicy | None = None
    has_late_drafts: bool = False

    def check_pages(self, groups: KVGroups, num_pages: int, max_adapter_pages: int = 0) -> None:
        """Raise `ConfigError` unless a sequence that runs alone always has enough pages, those of its adapter too."""
        needed = 1 + groups.max_sequence_pages(self.max_model_len, self.max_chunk_tokens) + max_adapter_pages
        if self.kv_policy is not None:
            needed += self.kv_policy.num_own_pages(groups)
        if num_pages < needed:
            with_adapter = f" with an adapter of {max_adapter_pages} pages" if max_adapter_pages else ""
            raise ConfigError(
                f"num_pages={num_pages} cannot hold one sequence of max_model_len={self.max_model_len} tokens"
                f"{with_adapter}, which takes {needed} pages of {groups.page_size} positions, the scratch page "
                f"included; give the pool more memory or lower max_model_len{' or max_lora_rank' * bool(with_adapter)}",
                param="num_pages",
            )

    def max_len(self, request: Request) -> int:
        """Tokens at which a sequence ends, prompt included."""
        policy = self.kv_policy if request.has_kv_policy else None
        longest = self.max_model_len if policy is None else policy.max_len
        return min(len(request.prompt_token_ids) + request.max_tokens, longest)

    def max_computed(self, request: Request) -> int:
        """KV positions that a sequence computes at most: the last token, drawn or only scored, is never an input.

        A pooled prompt is computed to its end, and so is a prompt of a single token, because a sequence must run to
        end.
        """
        max_len = self.max_len(request)
        return max_len if request.pooling is not None else max(1, max_len - 1)


def check_token_budget(max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """Raise `ConfigError` unless each step has a token for every running sequence."""
    if max_num_batched_tokens < max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens={max_num_batched_tokens} must be at least max_num_seqs={max_num_seqs}, so that "
            "every running sequence gets its token in each step; raise the first or lower the second",
            param="max_num_batched_tokens",
        )
