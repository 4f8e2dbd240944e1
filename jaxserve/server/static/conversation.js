// What was said, kept for this tab: a reload does not lose it, and closing the tab forgets it.

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
      // storage that is off or full of something else: a new conversation
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
      // no room: it lasts as long as the page
    }
  }

  /** The messages up to the last question; questions without an answer are left out, for roles must alternate. */
  messages(system) {
    const messages = system ? [{ role: "system", content: system }] : [];
    for (const { question, answer } of this.exchanges.slice(0, -1)) {
      if (answer) messages.push({ role: "user", content: question }, { role: "assistant", content: answer });
    }
    return [...messages, { role: "user", content: this.exchanges.at(-1).question }];
  }
}
