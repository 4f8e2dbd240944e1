"""Host: the routes that show how text becomes tokens: /tokenize, /detokenize, /tokenizer_info."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.calls.prompt_inputs import chat_prompt, encoded, tokenizer_of
from jaxserve.server.calls.respond import Json
from jaxserve.server.http.body_reader import read_body
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.offload import json_aside
from jaxserve.server.openai.openapi_bodies import takes
from jaxserve.server.openai.requests.tokenization_bodies import DetokenizeBody, TokenizeBody
from jaxserve.server.server_state import ServerState
from jaxserve.text.tokenizer import Tokenizer


def routes(service: ServerState) -> APIRouter:
    router = APIRouter(tags=["tokens"])

    @router.post("/tokenize", **takes(TokenizeBody))
    async def tokenize(request: Request) -> Response:
        """Token ids of a prompt, or of the prompt that a conversation makes."""
        body = await read_body(request, TokenizeBody, service.config)
        service.name_of(body.model)
        if body.prompt is not None:
            (ids,) = await encoded(service, [body.prompt], add_special_tokens=body.add_special_tokens)
        else:
            ids = list((await chat_prompt(service, body, None)).token_ids or ())
        tokenizer = tokenizer_of(service)
        counted = {"count": len(ids), "max_model_len": service.max_model_len, "tokens": ids}

        def answer() -> dict[str, Any]:
            pieces = [tokenizer.id_to_piece(i) for i in ids] if body.return_token_strs else None
            return {**counted, "token_strs": pieces}

        return await json_aside(answer, len(ids))

    @router.post("/detokenize", **takes(DetokenizeBody))
    async def detokenize(request: Request) -> Response:
        """The text that token ids spell, special tokens included."""
        body = await read_body(request, DetokenizeBody, service.config)
        service.name_of(body.model)
        tokenizer = tokenizer_of(service)
        size = service.llm.client.info.vocab_size
        return await json_aside(lambda: {"prompt": _text(tokenizer, body.tokens, size)}, len(body.tokens))

    @router.get("/tokenizer_info")
    async def tokenizer_info() -> Response:
        """The special tokens and the chat template, as evaluation harnesses ask for them."""
        tokenizer, template = tokenizer_of(service), service.llm.client.info.chat_template
        ends = [piece for i in tokenizer.eos_ids if (piece := tokenizer.id_to_piece(i)) is not None]
        special: dict[str, Any] = {"eos_token": ends[0] if ends else None, **template.special_tokens}
        if tokenizer.bos_id is not None:
            special.setdefault("bos_token", tokenizer.id_to_piece(tokenizer.bos_id))
        info = {"chat_template": template.source, "vocab_size": tokenizer.vocab_size, **special}
        return Json({"tokenizer_class": "jaxserve", "model_max_length": service.max_model_len, **info})

    return router


def _text(tokenizer: Tokenizer, ids: list[int], vocab_size: int) -> str:
    if ids and (highest := max(ids)) >= vocab_size:
        raise ApiError(400, f"token id {highest} is outside the vocabulary [0, {vocab_size})", param="tokens")
    return tokenizer.decode(ids, skip_special_tokens=False)
