"""Wiring: from an `EngineConfig` to an engine: the one place where scheduler, runner, weights and text meet."""

from collections.abc import Callable
from dataclasses import dataclass

from jax.sharding import Mesh

from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.adapter_reading import make_adapter_store, max_adapter_pages
from jaxserve.engine.build.draft_warnings import warn_of_other_texts, warn_of_short_context
from jaxserve.engine.build.engine_sizes import EngineSizes
from jaxserve.engine.build.engine_spec import EngineSpec, make_spec
from jaxserve.engine.build.grammars import Grammars
from jaxserve.engine.build.memory_budget import limit_on
from jaxserve.engine.build.memory_fallback import detect_shortage, with_room
from jaxserve.engine.build.model_source import DraftSource, ModelSource, open_draft, open_model
from jaxserve.engine.build.model_text import ModelText, check_same_tokens, choose_text, eos_ids, own_tokenizer
from jaxserve.engine.build.packing.choose_packing import with_packing
from jaxserve.engine.build.packing.packing_report import log_packing
from jaxserve.engine.build.startup.precompile import compiler_for, with_compiled_sizes
from jaxserve.engine.build.startup.xla_cache import use_compilation_cache
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.request_adapters import Adapters
from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.streaming_policy import StreamingPolicy
from jaxserve.lora.adapter_store import AdapterStore
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.params import Params
from jaxserve.runner.device_state import MAX_EDITS
from jaxserve.runner.drafts.proposer import Proposer
from jaxserve.runner.programs.executables import Compiler
from jaxserve.runner.programs.stored_layouts import place
from jaxserve.runner.runner import Runner
from jaxserve.scheduler.costs.swap_cost import SwapCost
from jaxserve.scheduler.earlier_outputs import make_earlier_outputs
from jaxserve.scheduler.policy.policies import make_policy
from jaxserve.scheduler.queue_limits import QueueLimits
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.scheduler.speculation import Speculation
from jaxserve.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class EngineParts:
    """Everything that `LLM` drives.

    model: as it runs, its rotary embeddings chosen for the context. described: as the checkpoint describes it,
    with the stacks of layers that its packing needs.
    """

    engine: Engine
    runner: Runner
    spec: EngineSpec
    model: ModelConfig
    described: ModelConfig
    text: ModelText
    input_processor: InputProcessor

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.text.tokenizer

    @property
    def sizes(self) -> EngineSizes:
        """The sizes that the engine was built with."""
        return self.spec.sizes


def build(config: EngineConfig, progress: Progress | None = None) -> EngineParts:
    """Load the model and allocate memory; no program is compiled yet but those that make the weights and the pool.

    progress: called with the bytes of weights loaded so far, and all of them.
    """
    use_compilation_cache(config)
    warn_of_other_texts(config.speculation)
    with open_model(config) as source, open_draft(config) as draft:
        mesh = make_mesh(config.tensor_parallel_size)
        source = with_packing(config, source, mesh.devices.flat[0])
        log_packing(config, source.packing)
        return _load(with_compiled_sizes(config, source.model), source, draft, mesh, progress)


def _load(
    config: EngineConfig, source: ModelSource, draft: DraftSource | None, mesh: Mesh, progress: Progress | None
) -> EngineParts:
    text = choose_text(config, source.checkpoint, source.folder)
    if isinstance(draft, ModelSource) and text.tokenizer is not None:
        # The model's own where another is named, which may differ in tokens that are never used.
        own = None if config.tokenizer is None else own_tokenizer(source.checkpoint, source.folder)
        check_same_tokens(own or text.tokenizer, own_tokenizer(draft.checkpoint, draft.folder))
    shape = None if draft is None else draft.model
    spec = make_spec(config, source.model, mesh, limit_on(mesh), shape, source.packing)
    warn_of_short_context(shape, spec.sizes.max_model_len)
    compiler = compiler_for(config, spec)  # may refuse the folder of `compiled`, and weights take long to read
    programs = spec.programs
    params = place(source.params(mesh, programs.param_specs, config.seed, progress), programs.params)
    draft_params = None
    if draft is not None and programs.draft_specs is not None and programs.draft_params is not None:
        draft_params = place(draft.params(mesh, programs.draft_specs, config.seed), programs.draft_params)
    return assemble(config, spec, compiler, source.model, params, text, draft_params)


def assemble(
    config: EngineConfig,
    planned: EngineSpec,
    compiler: Compiler,
    described: ModelConfig,
    params: Params,
    text: ModelText,
    draft_params: Params | None = None,
    adapters: AdapterStore | None = None,
) -> EngineParts:
    """All parts of an engine; the pool is smaller than planned where memory runs out.

    compiler: of that plan. adapters: those of an engine that this one replaces.
    """

    def allocate(spec: EngineSpec) -> tuple[EngineSpec, Runner]:
        own = compiler if spec is planned else compiler_for(config, spec)
        with detect_shortage(spec, "memory ran out while the pool was made"):
            runner = Runner(
                spec.programs, params, own, draft_params=draft_params, num_host_pages=spec.sizes.num_host_pages
            )
            return spec, runner

    spec, runner = with_room(config, planned, described, allocate)
    sizes, programs = spec.sizes, spec.programs
    model, proposer = programs.settings.model.config, programs.settings.proposer
    policy = make_policy(
        config.scheduling_policy, priority_ageing_s=config.priority_ageing_s, tenant_weights=config.tenant_weights
    )
    grammars = None if text.tokenizer is None else Grammars(text.tokenizer, model.vocab_size)
    adapters = make_adapter_store(config, programs) if adapters is None else adapters
    scheduler = Scheduler(
        programs.groups,
        spec.buckets,
        num_pages=sizes.num_pages,
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        max_model_len=sizes.max_model_len,
        vocab_size=model.vocab_size,
        max_chunk_tokens=sizes.max_chunk_tokens,
        policy=policy,
        queue_limits=QueueLimits(config.max_num_waiting, config.max_waiting_tokens),
        prefix_eviction=config.prefix_eviction if config.enable_prefix_caching else None,
        num_host_pages=sizes.num_host_pages,
        speculation=make_speculation(proposer, sizes.max_num_seqs),
        earlier_outputs=make_earlier_outputs(config.speculation),
        num_draft_masks=programs.num_draft_masks,
        kv_policy=StreamingPolicy(config.streaming) if config.streaming is not None else None,
        swap_cost=SwapCost(runner.time_load() if sizes.num_host_pages else 0.0),
        matchers=grammars,
        adapters=adapters,
        max_loras=config.max_loras if adapters is not None else 0,
        max_adapter_pages=max_adapter_pages(programs),
    )
    max_rounds, is_on_gpu = spec.buckets.max_rounds, programs.settings.model.mesh.devices.flat[0].platform == "gpu"
    engine = Engine(
        scheduler,
        runner,
        max_rounds=max_rounds,
        max_hidden_rounds=1 if is_on_gpu else max_rounds,  # a GPU's host waits before each round: none is hidden
        is_overlapped=config.async_scheduling,
    )
    input_processor = InputProcessor(
        tokenizer=text.tokenizer,
        eos_ids=eos_ids(model, text.tokenizer, text.generation_config),
        vocab_size=model.vocab_size,
        max_model_len=sizes.max_model_len,
        has_kv_policy=config.streaming is not None,
        has_drafts=config.speculation is not None,
        has_late_drafts=programs.num_draft_masks > 0,
        max_logprobs=programs.settings.max_logprobs,
        max_edits=MAX_EDITS,
        seed=config.seed,
        scheduling_fields=policy.fields,
        adapters=Adapters(adapters, config.max_loras if adapters is not None else 0),
        check_grammar=None if grammars is None else grammars.check,
        clock=engine.clock,
    )
    return EngineParts(engine, runner, spec, model, described, text, input_processor)


def make_speculation(proposer: Proposer | None, num_slots: int) -> Speculation | None:
    """None where rows do not draft."""
    if proposer is None:
        return None
    depths, catches_up = zip(*((part.depth, part.catches_up) for part in proposer.parts), strict=True)
    return Speculation(num_slots, depths, catches_up)
