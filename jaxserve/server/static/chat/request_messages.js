// A path of messages as a request's `messages`.

import { split } from "../markdown/reasoning.js";

/** The messages that lead to an answer, with the system prompt; the last of path is a question.

    Questions without an answer are left out, since roles must alternate, and so is reasoning, as models expect. */
export function requestMessages(path, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const [i, { role, content, files }] of path.entries()) {
    const answer = role === "user" ? path[i + 1] : null;
    if (role === "user" && (!answer || answerOf(answer))) messages.push({ role, content: withFiles(content, files) });
    else if (role === "assistant" && answerOf(path[i])) messages.push({ role, content: answerOf(path[i]) });
  }
  return messages;
}

/** The request for the rest of the last message of a path. */
export function continued(path, system) {
  const last = path.at(-1);
  const messages = [...requestMessages(path.slice(0, -1), system), { role: "assistant", content: last.content }];
  return { messages, continue_final_message: true, add_generation_prompt: false };
}

function answerOf({ content }) {
  return split(content, true).answer;
}

/** A question with its files below it, each in a fence longer than any inside. */
function withFiles(content, files = []) {
  const parts = files.map(({ name, text }) => {
    const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([run]) => run.length + 1)));
    return `File ${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...(content ? [content] : []), ...parts].join("\n\n");
}
