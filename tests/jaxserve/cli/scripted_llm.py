"""A model that answers with the words of the last question in upper case, one token per word."""

from jaxserve.core.outputs import CompletionOutput, RequestOutput


class FakeLLM:
    def __init__(self):
        self.prompts = []
        self.num_closed = 0
        self.finish_reason = "stop"

    def render_chat(self, messages, chat_template_kwargs):
        words = [message["role"] + ":" + message["content"] for message in messages]
        text = " | ".join([*words, *(f"{name}={value}" for name, value in chat_template_kwargs.items())])
        self.prompts.append(text)
        return {"prompt": messages[-1]["content"], "prompt_token_ids": list(range(len(text.split())))}

    def stream(self, prompt, params):
        words = prompt["prompt"].upper().split()
        limit = params.max_tokens if params.max_tokens is not None else len(words)
        reason = "length" if limit < len(words) else self.finish_reason
        return self._pieces(words[:limit], reason)

    def _pieces(self, words, reason):
        try:
            for i, word in enumerate(words):
                is_last = i == len(words) - 1
                completion = CompletionOutput(0, word + " ", [i], finish_reason=reason if is_last else None)
                yield RequestOutput("0", None, [], outputs=[completion], finished=is_last)
        finally:
            self.num_closed += 1
