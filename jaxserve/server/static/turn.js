// One exchange on the page. Questions and answers are inserted as text nodes only, never as HTML.

const FENCE = "```";
const OPENS = /^`{3,}[^`\n]*\n?$/; // a language after the fence is not shown either
const CLOSES = /^`{3,}\s*$/;

/** A new element with a class and text. */
function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.append(text);
  return made;
}

/** Writes streamed text into an element: plain paragraphs, and code between lines of three backticks. */
export class Writer {
  constructor(into) {
    this.into = into;
    this.line = ""; // the start of a line that may still become a fence
    this.isCode = false;
    this.text = null;
  }

  write(text) {
    for (const part of text.split(/(?<=\n)/)) this.writePart(part);
  }

  /** Writes the rest at the end of the text. */
  end() {
    if (!this.isFence) this.put(this.line);
    this.line = "";
  }

  writePart(part) {
    const isStart = this.text === null || this.line !== "" || this.text.data.endsWith("\n");
    if (!isStart) return this.put(part);
    this.line += part;
    if (this.isFence && this.line.endsWith("\n")) this.turn();
    else if (!this.isFence && !FENCE.startsWith(this.line)) this.end();
  }

  get isFence() {
    return (this.isCode ? CLOSES : OPENS).test(this.line);
  }

  /** Switches between text and code; the fence itself is not shown. */
  turn() {
    this.line = "";
    this.isCode = !this.isCode;
    this.text = null;
  }

  put(text) {
    if (text === "") return;
    if (this.text === null) {
      this.text = document.createTextNode("");
      const block = document.createElement(this.isCode ? "pre" : "p");
      block.append(this.text);
      this.into.append(block);
    }
    this.text.appendData(text);
  }
}

export class Turn {
  constructor(exchange, model) {
    this.exchange = exchange;
    this.root = element("article", "turn");
    this.name = element("h2", "who", model);
    this.said = element("div", "said answer");
    this.said.setAttribute("aria-live", "polite");
    this.note = element("p", "note quiet");
    this.again = element("button", "plain", "Again");
    this.copy = element("button", "plain", "Copy");
    for (const button of [this.again, this.copy]) button.type = "button";
    this.copy.addEventListener("click", () => this.copyAnswer());
    const actions = element("span", "actions");
    actions.append(this.copy, this.again);
    this.foot = element("div", "foot");
    this.foot.append(this.note, actions);
    this.root.append(
      element("h2", "who", "You"),
      element("div", "said question", exchange.question),
      this.name,
      this.said,
      this.foot,
    );
    this.begin();
    if (exchange.answer) this.write(exchange.answer);
  }

  /** Starts an empty answer. */
  begin() {
    this.said.replaceChildren();
    this.writer = new Writer(this.said);
    this.note.textContent = "";
    this.note.classList.remove("warn");
    this.foot.hidden = true;
    this.root.classList.add("busy");
    this.said.setAttribute("aria-busy", "true"); // screen readers read the complete answer, not each word
  }

  write(text) {
    this.writer.write(text);
  }

  end() {
    const { note, answer, isFailed } = this.exchange;
    this.writer.end();
    this.note.textContent = note;
    this.note.classList.toggle("warn", isFailed);
    this.foot.hidden = false;
    this.copy.hidden = !answer;
    this.root.classList.remove("busy");
    this.said.removeAttribute("aria-busy");
  }

  async copyAnswer() {
    try {
      await navigator.clipboard.writeText(this.exchange.answer);
      this.copy.textContent = "Copied";
    } catch {
      this.copy.textContent = "Select it, then copy";
    }
    setTimeout(() => (this.copy.textContent = "Copy"), 2000);
  }
}
