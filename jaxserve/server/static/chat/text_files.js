// Text files that are sent with a question.

import { element } from "../dom/element.js";

const MAX_BYTES = 1_000_000; // some 250,000 tokens, more than most contexts
const MAX_FILES = 10;

/** The files as {name, text}. Throws an error whose message is for users. */
export async function readFiles(files, numPresent) {
  if (numPresent + files.length > MAX_FILES) throw new Error(`A message can have at most ${MAX_FILES} files.`);
  return Promise.all([...files].map(readFile));
}

async function readFile(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than 1 MB.`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes("\0")) throw new TypeError();
    return { name: file.name, text };
  } catch {
    throw new Error(`${file.name} is not a text file in UTF-8.`);
  }
}

/** A file of a message, folded. */
export function fileView({ name, text }) {
  const lines = text.split("\n").length;
  const label = `${name}, ${lines} ${lines === 1 ? "line" : "lines"}`;
  const body = element("pre", { tabindex: 0, role: "region", "aria-label": `Contents of ${name}` }, text);
  return element("details", { class: "file" }, element("summary", {}, label), body);
}
