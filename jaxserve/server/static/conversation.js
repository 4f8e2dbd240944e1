// The conversation, stored for this tab: it survives a reload, and closing the tab deletes it.

const KEY = "jaxserve.conversation";

/** exchanges: {question, answer, note, isFailed}, the oldest first. */
export class Conversation {
  constructor(storage) {
    this.storage = storage;
    this.exchanges = [];
    try {
      const kept = JSON.parse(storage.getItem(KEY));
      if (Array.isArray(kept)) this.exchanges = kept.filter((one) => typeof one?.question === "string");
    } catch {
      // storage is disabled or holds other data: start a new conversation
    }
  }

  add(question) {
    this.exchanges.push({ question, answer: "", note: "", isFailed: false });
    return this.exchanges.at(-1);
  }

  clear() {
    this.exchanges = [];
    this.save();
  }

  save() {
    try {
      this.storage.setItem(KEY, JSON.stringify(this.exchanges));
    } catch {
      // no space: the conversation lasts as long as the page
    }
  }

  /** The messages up to the last question, without unanswered questions, since roles must alternate. */
  messages(system) {
    const messages = system ? [{ role: "system", content: system }] : [];
    for (const { question, answer } of this.exchanges.slice(0, -1)) {
      if (answer) messages.push({ role: "user", content: question }, { role: "assistant", content: answer });
    }
    return [...messages, { role: "user", content: this.exchanges.at(-1).question }];
  }
}
