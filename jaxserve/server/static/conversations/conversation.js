// A conversation: its messages, its title and when it last changed.

import { MessageTree } from "./message_tree.js";

const MAX_TITLE = 80; // characters
const UNTITLED = "New conversation";

export class Conversation {
  constructor({ id = newId(), name = "", changed = Date.now(), tree } = {}) {
    this.id = id;
    this.name = name; // given by the user
    this.changed = changed; // milliseconds since 1970
    this.tree = tree ?? new MessageTree();
  }

  /** The name, or the start of the first question. */
  get title() {
    const first = this.tree.path[0]?.content.trim().split("\n")[0] ?? "";
    return this.name || first.slice(0, MAX_TITLE) || UNTITLED;
  }

  get isEmpty() {
    return this.tree.messages.size === 0;
  }

  /** Whether the title or any message contains all words. */
  matches(words) {
    if (words.length === 0) return true;
    const contents = [...this.tree.messages.values()].map(({ content }) => content);
    const text = [this.title, ...contents].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  toJSON() {
    const { id, name, changed, tree } = this;
    return { id, name, changed, leaf: tree.leaf, messages: [...tree.messages.values()] };
  }

  /** The conversation of a record, which may come from a file or an older page. Throws if it is none. */
  static from(record) {
    const { id, name, changed, leaf, messages } = record;
    const ids = new Set([null]);
    const isRight = messages.every((one) => {
      const isGood = isMessage(one) && ids.has(one.parent) && !ids.has(one.id);
      ids.add(one.id);
      return isGood;
    });
    const isWhole = [id, name].every((text) => typeof text === "string") && Number.isFinite(changed) && ids.has(leaf);
    if (!isRight || !isWhole) throw new TypeError("not a conversation");
    return new Conversation({ id, name, changed, tree: new MessageTree(messages, leaf) });
  }
}

/** Random; `crypto.randomUUID` exists with HTTPS and on this machine only. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join("-");
}

function isMessage({ id, role, content, reasoning = "", note = "", model = "", files = [] }) {
  const texts = [content, reasoning, note, model, ...files.flatMap(({ name, text }) => [name, text])];
  const isKnown = role === "user" || role === "assistant";
  return Number.isSafeInteger(id) && id > 0 && isKnown && texts.every((text) => typeof text === "string");
}
