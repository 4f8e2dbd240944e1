"""LangChain's classes for OpenAI's chats, completions and embeddings."""

import asyncio
from importlib.metadata import version

from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from scripts.clients.checks import MODEL, Checks, largest_difference, main

NUM_TEXTS = 1000  # the size of LangChain's default chunk of embeddings
TEXTS = [f"The square of {i} is" for i in range(NUM_TEXTS)]
MESSAGES = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Why is the sky blue?"}]


def chat_model(checks: Checks, **options) -> ChatOpenAI:
    settings = {"base_url": f"{checks.url}/v1", "api_key": checks.key, "max_retries": 0, "temperature": 0}
    return ChatOpenAI(model=MODEL, max_tokens=24, stream_usage=True, **settings | options)


def chats(checks: Checks) -> None:
    """Chats, whole, streamed, in a chain, in a batch and asynchronous"""
    model, wanted = chat_model(checks), checks.direct_chats([MESSAGES], max_tokens=24)[0]
    answer = model.invoke([SystemMessage("Answer briefly."), HumanMessage("Why is the sky blue?")])
    checks.equal("text", answer.content, wanted)
    checks.equal("usage", answer.usage_metadata["output_tokens"], 24)
    checks.equal("finish reason", answer.response_metadata["finish_reason"], "length")
    whole = AIMessageChunk("")
    for chunk in model.stream(MESSAGES):
        whole += chunk
    checks.equal("streamed text", whole.content, wanted)
    checks.equal("streamed usage", whole.usage_metadata, answer.usage_metadata)
    chain = ChatPromptTemplate([("system", "Answer briefly."), ("user", "{question}")]) | model | StrOutputParser()
    checks.equal("text of a chain", chain.invoke({"question": MESSAGES[1]["content"]}), wanted)
    questions = [[{"role": "user", "content": f"What is {i} plus {i}?"}] for i in range(16)]
    expected = checks.direct_chats(questions, max_tokens=24)
    checks.equal("batch", [each.content for each in model.batch(questions)], expected)
    found = asyncio.run(model.abatch(questions))
    checks.equal("asynchronous batch", [each.content for each in found], expected)
    scored = chat_model(checks, logprobs=True, top_logprobs=2).invoke(MESSAGES)
    checks.equal("log-probabilities", len(scored.response_metadata["logprobs"]["content"]), 24)


def completions(checks: Checks) -> None:
    """1,000 prompts in one call of completions, and a streamed completion"""
    settings = {"base_url": f"{checks.url}/v1", "api_key": checks.key, "max_retries": 0, "temperature": 0}
    model = OpenAI(model=MODEL, max_tokens=2, batch_size=NUM_TEXTS, timeout=600, **settings)
    found = [each[0].text for each in model.generate(TEXTS).generations]
    checks.equal("number of texts", len(found), NUM_TEXTS)
    checks.equal("every 50th text", found[::50], checks.direct_texts(TEXTS[::50], max_tokens=2))
    checks.equal("streamed text", "".join(model.stream(TEXTS[7])), found[7])


def embeddings(checks: Checks) -> None:
    """1,000 embeddings in one call"""
    # Without check_embedding_ctx_length LangChain cuts texts by the token ids of OpenAI's own models.
    model = OpenAIEmbeddings(
        model=MODEL, base_url=f"{checks.url}/v1", api_key=checks.key, check_embedding_ctx_length=False, max_retries=0
    )
    found = model.embed_documents(TEXTS)
    checks.equal("number of vectors", len(found), NUM_TEXTS)
    checks.holds("every 50th vector", largest_difference(found[::50], checks.direct_vectors(TEXTS[::50])) < 1e-6)
    checks.holds("vector of a query", largest_difference([model.embed_query(TEXTS[3])], [found[3]]) < 1e-6)


if __name__ == "__main__":
    main(version("langchain-openai"), chats, completions, embeddings)
