// All conversations, stored in this browser only, up to a size that every browser grants.

import { Conversation } from "./conversation.js";

const PREFIX = "jaxserve.conversation.";
const MAX_CHARACTERS = 4_000_000; // browsers grant a site five million; settings and others need little

const FULL =
  "This browser’s storage for conversations is full, so the last change is not stored: export and delete some of them.";
const DISABLED = "This browser stores nothing for this page: conversations last until it is closed.";

export class ConversationStore {
  /** values: `JsonStorage`; onChange: called after another tab has changed a conversation. */
  constructor(values, onChange = () => {}) {
    this.values = values;
    this.conversations = new Map();
    this.sizes = new Map(); // characters of each stored one
    for (const key of values.keys(PREFIX)) this.load(key);
    addEventListener("storage", ({ key }) => {
      if (!key?.startsWith(PREFIX)) return;
      this.load(key);
      onChange(key.slice(PREFIX.length));
    });
  }

  /** All conversations, the one that changed last first. */
  get all() {
    return [...this.conversations.values()].sort((one, other) => other.changed - one.changed);
  }

  get size() {
    return [...this.sizes.values()].reduce((sum, size) => sum + size, 0);
  }

  load(key) {
    const id = key.slice(PREFIX.length);
    this.conversations.delete(id);
    this.sizes.delete(id);
    const text = this.values.readText(key);
    if (text === null) return;
    try {
      this.conversations.set(id, Conversation.from({ ...JSON.parse(text), id }));
      this.sizes.set(id, text.length);
    } catch {
      // other data under this name is left alone
    }
  }

  /** Stores a conversation; returns what went wrong, or an empty text. */
  save(conversation) {
    const { id } = conversation;
    this.conversations.set(id, conversation);
    if (!this.values.isAvailable) return DISABLED;
    const text = JSON.stringify(conversation);
    if (this.size - (this.sizes.get(id) ?? 0) + text.length > MAX_CHARACTERS) return FULL;
    if (!this.values.writeText(PREFIX + id, text)) return FULL;
    this.sizes.set(id, text.length);
    return "";
  }

  remove({ id }) {
    this.conversations.delete(id);
    this.sizes.delete(id);
    this.values.remove(PREFIX + id);
  }
}
