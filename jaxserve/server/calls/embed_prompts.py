"""Host: `read_inputs` and `embed_prompts`: from texts to vectors, for the endpoints that make vectors of texts."""

from collections.abc import Sequence

from jaxserve.core.options.lora_request import Adapter
from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.core.outputs import EmbeddingRequestOutput
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.server.calls.prompt_inputs import Truncation, read_texts
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.pooled_fields import PooledFields
from jaxserve.server.server_state import ServerState


async def read_inputs(
    state: ServerState, body: PooledFields, inputs: Sequence[str] | Sequence[list[int]]
) -> list[Prompt]:
    """The prompts of inputs, truncated as the body wants."""
    truncation = None
    if body.truncate_prompt_tokens is not None:
        truncation = Truncation.of_length(body.truncate_prompt_tokens, state.max_model_len, reserved=0)
    return await read_texts(state, inputs, add_special_tokens=body.add_special_tokens, truncation=truncation)


async def embed_prompts(
    state: ServerState,
    body: PooledFields,
    adapter: Adapter | None,
    prompts: list[Prompt],
    record: AccessRecord,
    arrival_s: float,
    *,
    normalize: bool,
) -> list[EmbeddingRequestOutput]:
    """A vector for each prompt, pooled as the body wants; `record` receives all of them."""
    options = SchedulingKwargs(deadline_s=state.config.request_timeout_s)
    outputs = await state.engine.embed(
        prompts, pooling=body.pooling, normalize=normalize, arrival_s=arrival_s, lora_request=adapter, **options
    )
    for output in outputs:
        record.note(output)
    return outputs


def num_numbers(outputs: Sequence[EmbeddingRequestOutput]) -> int:
    """How many numbers the vectors have together."""
    return sum(len(output.outputs.embedding) for output in outputs)
