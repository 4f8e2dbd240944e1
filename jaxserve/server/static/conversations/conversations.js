// Which conversation is shown, and its title, export, deletion and the notices about it.

import { Chat } from "../chat/chat.js";
import { button } from "../dom/element.js";
import { Conversation } from "./conversation.js";
import { ConversationStore } from "./conversation_store.js";
import { download } from "./exported_file.js";
import { ConversationPanel } from "./panel.js";

const CURRENT = "jaxserve.current";

export class Conversations {
  /** kept: `JsonStorage` of this browser; tab: of this tab, which remembers what it shows; parts: of `Chat`. */
  constructor(page, kept, tab, parts) {
    this.tab = tab;
    this.title = page.querySelector("#title");
    this.notice = page.querySelector("#notice");
    this.problem = page.querySelector("#problem");
    this.store = new ConversationStore(kept, (id) => this.changedElsewhere(id));
    const onProblem = (text) => (this.problem.textContent = text);
    this.panel = new ConversationPanel(page.querySelector("#conversations"), this.store, {
      onOpen: (one) => this.open(one),
      onImport: (ones) => this.import(ones),
      onDeleteAll: () => this.delete(this.store.all),
      onProblem,
    });
    this.chat = new Chat({
      ...parts,
      onChange: (one) => this.changed(one),
      onFork: (tree) => this.fork(tree),
      onDelete: (record) => this.offerUndo("The message is deleted.", () => this.restore([record])),
      onProblem,
    });
    page.querySelector("#new").addEventListener("click", () => this.open(new Conversation()));
    page.querySelector("#export").addEventListener("click", () => download([this.current], this.current.title));
    page.querySelector("#delete").addEventListener("click", () => this.delete([this.current]));
    this.title.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.chat.composer.prompt.focus();
    });
    this.title.addEventListener("change", () => this.rename(this.title.value.trim()));
    addEventListener("pagehide", () => this.chat.leave());
    addEventListener("keydown", (event) => this.key(event));
    this.show(this.store.conversations.get(tab.read(CURRENT)) ?? new Conversation());
  }

  /** Ctrl or Cmd with K searches; with Shift and O it starts a new conversation. */
  key(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    const pressed = `${event.shiftKey ? "shift " : ""}${event.key.toLowerCase()}`;
    if (pressed !== "k" && pressed !== "shift o") return;
    event.preventDefault();
    if (pressed === "k") this.panel.focus();
    else this.open(new Conversation());
  }

  /** Shows a conversation at the user's wish. */
  open(conversation) {
    this.chat.leave();
    this.notice.replaceChildren();
    this.problem.textContent = "";
    this.show(conversation);
    location.hash = "#chat"; // where only one view is visible
    this.chat.focus();
  }

  show(conversation) {
    this.current = conversation;
    this.tab.write(CURRENT, conversation.id);
    this.chat.open(conversation);
    this.refresh();
  }

  refresh() {
    if (document.activeElement !== this.title) this.title.value = this.current.title;
    this.title.disabled = this.current.isEmpty;
    for (const id of ["#export", "#delete"]) this.title.form.querySelector(id).hidden = this.current.isEmpty;
    this.panel.show(this.current);
  }

  /** Stores a conversation after a change. */
  changed(conversation) {
    conversation.changed = Date.now();
    this.notice.replaceChildren(this.store.save(conversation));
    this.refresh();
  }

  changedElsewhere(id) {
    const changed = this.store.conversations.get(id);
    if (id === this.current.id && changed && !this.chat.answering) this.show(changed);
    else this.panel.show(this.current);
  }

  rename(name) {
    this.current.name = name;
    this.changed(this.current);
  }

  fork(tree) {
    const fork = new Conversation({ name: `${this.current.title} (branch)`, tree });
    this.changed(fork);
    this.open(fork);
  }

  import(conversations) {
    const problem = conversations.map((one) => this.store.save(one)).find((text) => text !== "");
    this.notice.replaceChildren(problem ?? `${conversations.length} imported.`);
    this.panel.show(this.current);
  }

  delete(conversations) {
    this.chat.leave();
    const records = structuredClone(conversations.map((one) => one.toJSON()));
    for (const one of conversations) this.store.remove(one);
    if (conversations.includes(this.current)) this.show(new Conversation());
    else this.refresh();
    this.offerUndo(`${conversations.length === 1 ? "The conversation is" : "All conversations are"} deleted.`, () =>
      this.restore(records),
    );
  }

  restore(records) {
    const restored = records.map((record) => Conversation.from(record));
    for (const one of restored) this.store.save(one);
    this.show(restored[0]);
  }

  offerUndo(text, undo) {
    const offer = button("Undo", () => {
      this.notice.replaceChildren();
      undo();
    });
    this.notice.replaceChildren(text, " ", offer);
  }
}
