// HTTP requests to this page's server, with errors translated into messages for users.

/** A refused or failed request. message: for users; field: the setting at fault, if the server names one. */
class Problem extends Error {
  constructor(message, field = null) {
    super(message);
    this.field = field;
  }
}

/** Fetches a path relative to the page's, and throws a `Problem` unless the response is successful. */
export async function ask(path, options = {}) {
  let response;
  try {
    // Without the page's credentials (user:key@host), with which browsers refuse to fetch.
    response = await fetch(new URL(path, location.origin + location.pathname), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const { status } = response;
  const error = await response.json().then((body) => body.error ?? {}, () => ({}));
  const wait = Number(response.headers.get("Retry-After"));
  const later = wait > 0 ? `Try again in ${wait} s.` : "Try again in a moment.";
  const said = error.message ? `${error.message}.`.replace(/([.!?])\.$/, "$1") : `It answered with status ${status}.`;
  if (status === 401) return new Problem("The server needs its key: reload the page and log in.");
  if (error.code === "context_length_exceeded") {
    return new Problem(`The conversation has grown too long for the model. ${said}`);
  }
  if (status === 429 || status === 503) return new Problem(`Not now: ${said} ${later}`);
  if (status >= 500) return new Problem(`The server failed. ${said}`);
  return new Problem(`The server refused this. ${said}`, error.param);
}

/** The data of each server-sent event as it arrives; a lost connection ends the events like a closed one. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read().catch(cut);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function cut(error) {
  if (error.name === "AbortError") throw error;
  return { done: true };
}

/** Parts {text, finish, usage} of the answer to a conversation. */
export async function* piecesOf(body, signal) {
  const request = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  };
  for await (const data of events(await ask("v1/chat/completions", request))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Problem(`The answer broke off: ${chunk.error.message}`);
    const choice = chunk.choices[0];
    yield { text: choice?.delta?.content ?? "", finish: choice?.finish_reason ?? null, usage: chunk.usage ?? null };
  }
  throw new Problem("The answer broke off: the connection was lost.");
}
