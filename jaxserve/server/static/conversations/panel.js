// The list of conversations, with search, import and export.

import { button, element } from "../dom/element.js";
import { conversationsIn, download } from "./exported_file.js";

export class ConversationPanel {
  /** onOpen: called with a conversation; onImport: with a list of new ones; onDeleteAll and onProblem: with a text. */
  constructor(panel, store, { onOpen, onImport, onDeleteAll, onProblem }) {
    this.store = store;
    this.onOpen = onOpen;
    this.list = panel.querySelector("#conversation-list");
    this.search = panel.querySelector("#search");
    this.none = panel.querySelector("#none-found");
    this.all = panel.querySelector("#of-all");
    this.search.addEventListener("input", () => this.show(this.current));
    const input = panel.querySelector("#import-file");
    panel.querySelector("#import").addEventListener("click", () => input.click());
    panel.querySelector("#export-all").addEventListener("click", () => download(store.all, "jaxserve conversations"));
    panel.querySelector("#delete-all").addEventListener("click", onDeleteAll);
    input.addEventListener("change", async () => {
      try {
        for (const file of input.files) onImport(await conversationsIn(file));
      } catch (error) {
        onProblem(error.message);
      }
      input.value = "";
    });
  }

  /** Lists the conversations that have all words of the search; marks the current one. */
  show(current) {
    this.current = current;
    const words = this.search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const found = this.store.all.filter((one) => one.matches(words));
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    this.list.replaceChildren(...found.map((one) => this.item(one)));
    const buttons = [...this.list.querySelectorAll("button")];
    buttons.find(({ dataset }) => dataset.id === focused)?.focus(); // the list is made anew whenever an answer is stored
    this.none.hidden = found.length > 0;
    this.none.textContent = words.length ? "No conversation has these words." : "None yet.";
    this.all.hidden = this.store.all.length === 0;
  }

  /** Begins a search. */
  focus() {
    location.hash = "#conversations"; // where only one view is visible
    this.search.focus();
    this.search.select();
  }

  item(conversation) {
    const { id, title } = conversation;
    const current = id === this.current?.id ? "true" : null;
    const attributes = { class: "plain", "data-id": id, title, "aria-current": current };
    return element("li", {}, button(title, () => this.onOpen(conversation), attributes));
  }
}
