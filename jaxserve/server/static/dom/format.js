// Formats numbers for display; values that change often keep their width.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const NOTHING = "–";

export function count(number) {
  return whole.format(number);
}

export function rate(perSecond) {
  return perSecond < 100 ? tenths.format(perSecond) : whole.format(perSecond);
}

/** Milliseconds as "8.4 ms", "84 ms", "1.2 s"; a dash for none. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms < 10) return `${tenths.format(ms)} ms`;
  return ms < 1000 ? `${whole.format(ms)} ms` : `${tenths.format(ms / 1000)} s`;
}

/** "1 token", "2 tokens". */
export function counted(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
