// HTML's character references in Markdown, such as &lt; – without an HTML parser, the frequent ones only.

const NAMED = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", hellip: "…",
  mdash: "—", ndash: "–", bull: "•", middot: "·", times: "×", divide: "÷", deg: "°", plusmn: "±", ne: "≠", le: "≤",
  ge: "≥", larr: "←", rarr: "→", uarr: "↑", darr: "↓", euro: "€", pound: "£", para: "¶", sect: "§", infin: "∞",
};
const LAST_CODE_POINT = 0x10ffff;

/** The text with known references replaced. */
export function decode(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{2,6}));/g, (all, decimal, hexadecimal, name) => {
    if (name) return Object.hasOwn(NAMED, name) ? NAMED[name] : all;
    const code = decimal ? Number(decimal) : parseInt(hexadecimal, 16);
    return code > 0 && code <= LAST_CODE_POINT ? String.fromCodePoint(code) : all;
  });
}
