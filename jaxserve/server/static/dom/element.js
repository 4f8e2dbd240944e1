// Makes elements. Text is only ever a text node: nothing on this page makes elements of text.

/** A new element. attributes: an `on…` function listens; `true` sets an empty attribute; false and null set none. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A button that submits no form. */
export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}
