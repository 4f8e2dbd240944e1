// A button that copies a text and says so.

import { button } from "./element.js";

const SAID_MS = 2000;

/** text: a function that returns what to copy; label: what it copies, for screen readers. */
export function copyButton(text, label) {
  const made = button("Copy", copy, { class: "plain", "aria-label": label });

  async function copy() {
    try {
      await navigator.clipboard.writeText(text());
      say("Copied");
    } catch {
      say("Select it, then copy"); // browsers refuse without HTTPS, except on this machine
    }
  }

  function say(words) {
    made.textContent = words;
    made.setAttribute("aria-label", words);
    setTimeout(() => {
      made.textContent = "Copy";
      made.setAttribute("aria-label", label);
    }, SAID_MS);
  }

  return made;
}
