// Changes a message in its place.

import { button, element } from "../dom/element.js";

/** An editor of a text. onSave: called with the new text; onClose: when it is closed without one. */
export function editor(text, { saves, onSave, onClose }) {
  const box = element("textarea", { "aria-label": "Edit the message", rows: 3 });
  box.value = text;
  const save = () => box.value.trim() !== "" && onSave(box.value.trim());
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation(); // which would stop an answer
      onClose();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
    }
  });
  const cancel = button("Cancel", onClose, { class: "plain" });
  const actions = element("p", { class: "actions" }, button(saves, save), cancel);
  return { root: element("div", { class: "editor" }, box, actions), box };
}
