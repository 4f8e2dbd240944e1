// Conversations as a JSON file, out of the browser and into it.

import { Conversation } from "./conversation.js";

const FORMAT = "jaxserve conversations";
const VERSION = 1;
const MAX_BYTES = 50_000_000;

/** Lets the browser download conversations as a file. */
export function download(conversations, name) {
  const data = JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1);
  const address = URL.createObjectURL(new Blob([data], { type: "application/json" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: `${fileName(name)}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // browsers read it after the click
}

/** The conversations of a file, as new ones. Throws an error whose message is for users. */
export async function conversationsIn(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than 50 MB.`);
  const text = await file.text();
  let whole;
  try {
    whole = JSON.parse(text);
  } catch {
    throw new Error(`${file.name} is not JSON.`);
  }
  if (whole?.format !== FORMAT || !Array.isArray(whole.conversations)) {
    throw new Error(`${file.name} is not a file of conversations exported here.`);
  }
  if (whole.version !== VERSION) {
    throw new Error(`${file.name} has version ${whole.version}; this page reads ${VERSION}.`);
  }
  return whole.conversations.map((record, i) => {
    try {
      const { name, changed, tree } = Conversation.from(record);
      return new Conversation({ name, changed, tree });
    } catch {
      throw new Error(`Conversation ${i + 1} of ${file.name} is damaged: nothing was imported.`);
    }
  });
}

function fileName(title) {
  return title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60).toLowerCase() || "conversation";
}
