// The answer to a conversation, as it arrives.

import { Problem, ask } from "./api.js";
import { events } from "./events.js";

const STREAMED = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };

/** Parts {text, reasoning, finish, usage} of the answer to a conversation. */
export async function* piecesOf(body, signal) {
  const request = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, ...STREAMED }),
    signal,
  };
  for await (const data of events(await ask("v1/chat/completions", request))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Problem(`The answer broke off: ${chunk.error.message}`);
    const { delta = {}, finish_reason: reason = null, stop_reason: why } = chunk.choices[0] ?? {};
    const finish = reason === "length" && why === "timeout" ? why : reason;
    const reasoning = delta.reasoning ?? delta.reasoning_content ?? "";
    yield { text: delta.content ?? "", reasoning, finish, usage: chunk.usage ?? null };
  }
  throw new Problem("The answer broke off: the connection was lost.");
}
