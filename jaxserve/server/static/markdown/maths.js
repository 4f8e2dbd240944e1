// Formulas as elements by KaTeX, with MathML for screen readers.

import "../vendor/katex/katex.min.js";
import { element } from "../dom/element.js";

const OPTIONS = { throwOnError: true, trust: false, strict: "ignore", maxSize: 20, maxExpand: 1000 };

/** The formula, or its source if KaTeX cannot read it. */
export function formula({ text, raw, isDisplay }) {
  const made = isDisplay ? element("div", { class: "formula", tabindex: 0 }) : element("span");
  try {
    const tree = globalThis.katex.__renderToDomTree(text, { ...OPTIONS, displayMode: isDisplay });
    setStylesAside(tree);
    made.append(tree.toNode());
    for (const one of made.querySelectorAll("[data-style]")) one.style.cssText = one.dataset.style;
  } catch {
    made.textContent = raw.trim();
  }
  return made;
}

/** Renames style attributes, which the page's policy forbids; scripts may set the styles of elements. */
function setStylesAside(node) {
  if (node.attributes?.style) {
    node.attributes["data-style"] = node.attributes.style;
    delete node.attributes.style;
  }
  node.children?.forEach(setStylesAside);
}
