// The box in which a message is written, with its files.

import { button, element } from "../dom/element.js";
import { readFiles } from "./text_files.js";

export class Composer {
  /** onSend: called with {content, files}; onProblem: with a text. */
  constructor(form, { onSend, onStop, onProblem }) {
    this.form = form;
    this.prompt = form.querySelector("#prompt");
    this.list = form.querySelector("#files");
    this.onProblem = onProblem;
    this.files = [];
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.isEmpty) onSend({ content: this.prompt.value.trim(), files: this.files });
    });
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.querySelector("#halt").addEventListener("click", onStop);
    this.listenForFiles(form.querySelector("#file"), form.parentElement);
  }

  get isEmpty() {
    return this.prompt.value.trim() === "" && this.files.length === 0;
  }

  /** Files come from the button, from the clipboard, or are dropped anywhere on the conversation. */
  listenForFiles(input, area) {
    this.form.querySelector("#attach").addEventListener("click", () => input.click());
    input.addEventListener("change", async () => {
      await this.attach(input.files);
      input.value = "";
    });
    this.prompt.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) this.attach(event.clipboardData.files);
    });
    area.addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
    area.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.attach(event.dataTransfer.files);
    });
  }

  async attach(files) {
    try {
      this.setFiles([...this.files, ...(await readFiles(files, this.files.length))]);
      this.onProblem("");
    } catch (error) {
      this.onProblem(error.message);
    }
  }

  setFiles(files) {
    this.files = files;
    this.list.replaceChildren(...files.map((file) => this.chip(file)));
  }

  chip(file) {
    const remove = () => {
      this.setFiles(this.files.filter((one) => one !== file));
      this.prompt.focus();
    };
    return element("li", {}, file.name, button("×", remove, { class: "plain", "aria-label": `Remove ${file.name}` }));
  }

  clear() {
    this.prompt.value = "";
    this.setFiles([]);
  }

  /** Puts a message that was refused back, above what has been written since. */
  giveBack({ content, files = [] }) {
    this.prompt.value = [content, this.prompt.value].filter((text) => text !== "").join("\n\n");
    this.setFiles([...files, ...this.files]);
    this.prompt.focus();
  }

  setBusy(isBusy) {
    this.form.querySelector("#send").hidden = isBusy;
    this.form.querySelector("#halt").hidden = !isBusy;
  }
}
