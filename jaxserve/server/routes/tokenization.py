"""Host: the routes of the tokenizer: /tokenize, /detokenize and /tokenizer_info."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.calls.prompt_inputs import chat_prompt, encode_texts, tokenizer_of
from jaxserve.server.http.body_reader import read_body
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.json_response import Json, offloaded_json
from jaxserve.server.openai.requests.tokenization_bodies import DetokenizeBody, TokenizeBody
from jaxserve.server.openai.schemas.others import DetokenizeResponse, TokenizeResponse, TokenizerInfo
from jaxserve.server.routes.description import describe
from jaxserve.server.server_state import ServerState
from jaxserve.text.tokenizer import Tokenizer


def routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["tokens"])

    @router.post("/tokenize", **describe(TokenizeResponse, bodies=(TokenizeBody,), statuses=(429,)))
    async def tokenize(request: Request) -> Response:
        """Token ids of a prompt, or of the prompt that the chat template makes of messages."""
        body = await read_body(request, TokenizeBody.read, state.config)
        state.served_model(body.model)
        adds = body.adds_special_tokens
        if body.prompt is not None:
            (ids,) = await encode_texts(state, [body.prompt], add_special_tokens=adds)
        else:
            prompt = await chat_prompt(state, body, None, tools=body.tools, add_special_tokens=adds)
            ids = list(prompt.token_ids or ())
        tokenizer = tokenizer_of(state)
        fields = {"count": len(ids), "max_model_len": state.max_model_len, "tokens": ids}

        def response() -> dict[str, Any]:
            token_strs = [tokenizer.id_to_piece(i) for i in ids] if body.return_token_strs else None
            return {**fields, "token_strs": token_strs}

        return await offloaded_json(response, len(ids))

    @router.post("/detokenize", **describe(DetokenizeResponse, bodies=(DetokenizeBody,)))
    async def detokenize(request: Request) -> Response:
        """The text of token ids, special tokens included."""
        body = await read_body(request, DetokenizeBody.read, state.config)
        state.served_model(body.model)
        tokenizer = tokenizer_of(state)
        vocab_size = state.engine.info.vocab_size
        return await offloaded_json(lambda: {"prompt": _text(tokenizer, body.tokens, vocab_size)}, len(body.tokens))

    @router.get("/tokenizer_info", **describe(TokenizerInfo, statuses=(503,)))
    async def tokenizer_info() -> Response:
        """The special tokens and the chat template, in the format that evaluation harnesses read."""
        tokenizer, template = tokenizer_of(state), state.engine.info.chat_template
        ends = [piece for i in tokenizer.eos_ids if (piece := tokenizer.id_to_piece(i)) is not None]
        special: dict[str, Any] = {"eos_token": ends[0] if ends else None, **template.special_tokens}
        if tokenizer.bos_id is not None:
            special.setdefault("bos_token", tokenizer.id_to_piece(tokenizer.bos_id))
        info = {"chat_template": template.source, "vocab_size": tokenizer.vocab_size, **special}
        return Json({"tokenizer_class": "jaxserve", "model_max_length": state.max_model_len, **info})

    return router


def _text(tokenizer: Tokenizer, ids: list[int], vocab_size: int) -> str:
    if ids and (highest := max(ids)) >= vocab_size:
        raise ApiError(400, f"token id {highest} is outside the vocabulary [0, {vocab_size})", param="tokens")
    return tokenizer.decode(ids, skip_special_tokens=False)
