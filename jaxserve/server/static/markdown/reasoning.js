// Separates what a model thinks from what it answers, by the tags that models write.

const OPENS = /^\s*<think>/;
const CLOSE = "</think>";
const PARTIAL = /<\/?(?:t(?:h(?:i(?:nk?)?)?)?)?$/; // the end of a text that may become a tag

/** {reasoning, answer, isThinking} of a text that still grows, or is complete. Some chat templates write the opening
    tag into the prompt, so that the text has the closing one only. */
export function split(content, isComplete) {
  const text = isComplete ? content : content.replace(PARTIAL, "");
  const start = OPENS.exec(text)?.[0].length ?? 0;
  const end = text.indexOf(CLOSE);
  if (end >= 0 && (start > 0 || !text.slice(0, end).includes("<think>"))) {
    const answer = text.slice(end + CLOSE.length).trimStart();
    return { reasoning: text.slice(start, end).trimStart(), answer, isThinking: false };
  }
  if (start > 0) return { reasoning: text.slice(start).trimStart(), answer: "", isThinking: !isComplete };
  return { reasoning: "", answer: text, isThinking: false };
}
