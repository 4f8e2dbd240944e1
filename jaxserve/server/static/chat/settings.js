// Sampling settings. Empty fields are not sent: the model's defaults apply.

const KEY = "jaxserve.settings";
const MAX_STOPS = 16; // the server's limit

export class Settings {
  /** values: `JsonStorage`. */
  constructor(form, values) {
    this.form = form;
    this.values = values;
    this.panel = form.querySelector("#settings");
    this.fields = [...this.panel.querySelectorAll("input, textarea")];
    this.load();
    this.panel.addEventListener("input", () => this.changed());
    form.querySelector("#reset").addEventListener("click", () => this.reset());
    this.changed();
  }

  get system() {
    return this.form.elements.system.value.trim();
  }

  /** Fields of the request's body. */
  get body() {
    const numbers = this.fields.filter((field) => field.type === "number" && field.value !== "");
    const body = Object.fromEntries(numbers.map((field) => [field.name, field.valueAsNumber]));
    const stop = stops(this.form.elements.stop.value);
    return stop.length ? { ...body, stop } : body;
  }

  setContext(length) {
    this.context = length;
    if (length) this.form.elements.max_tokens.max = length;
    this.mark();
  }

  /** Whether all settings are valid; if not, shows the first invalid field. */
  check() {
    const wrong = this.mark();
    if (wrong) {
      this.panel.open = true;
      wrong.focus();
    }
    return !wrong;
  }

  /** Marks the setting that the server refused, if there is one of that name. */
  point(name) {
    const field = this.fields.find((one) => one.name === name);
    if (!field) return;
    this.panel.open = true;
    field.setAttribute("aria-invalid", "true");
  }

  changed() {
    this.mark();
    const used = this.fields.filter((field) => field.value.trim() !== "");
    const named = used.map((one) => `${title(one).toLowerCase()} ${one.type === "number" ? one.value : ""}`.trim());
    this.form.querySelector("#changed").textContent = named.length ? named.join(", ") : "the model’s defaults";
    this.save();
  }

  reset() {
    for (const field of this.fields) field.value = "";
    this.changed();
  }

  /** Marks the invalid fields; returns the first of them, or null. */
  mark() {
    const faults = this.fields.map((field) => [field, fault(field)]);
    for (const [field, text] of faults) {
      if (text) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
    const [field, text] = faults.find(([, found]) => found) ?? [null, ""];
    this.form.querySelector("#wrong").textContent = text;
    return field;
  }

  load() {
    const kept = this.values.read(KEY) ?? {};
    for (const field of this.fields) field.value = kept[field.name] ?? "";
  }

  save() {
    this.values.write(KEY, Object.fromEntries(this.fields.map((one) => [one.name, one.value])));
  }
}

/** A field's name in its label. */
function title(field) {
  return field.labels[0].textContent;
}

function stops(text) {
  return text.split("\n").filter((line) => line !== "").map((line) => line.replaceAll("\\n", "\n"));
}

/** The error of a field, or an empty text. */
function fault(field) {
  const name = title(field);
  if (field.name === "stop") return stops(field.value).length > MAX_STOPS ? `${name}: at most ${MAX_STOPS} texts.` : "";
  if (field.type !== "number") return "";
  const { badInput, rangeUnderflow, rangeOverflow } = field.validity;
  if (badInput || rangeUnderflow || rangeOverflow) return `${name} must be from ${field.min} to ${field.max}.`;
  return "whole" in field.dataset && !Number.isInteger(Number(field.value)) ? `${name} must be a whole number.` : "";
}
