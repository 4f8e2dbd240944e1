// What can be done with a message of a chat: the options of its view.

/** The author's name, the versions, actions by their button's text, and what saving an edited text does. */
export function optionsOf(chat, message) {
  const versions = chat.tree.versions(message);
  const index = versions.indexOf(message);
  const isAnswer = message.role === "assistant";
  const actions = {};
  if (isAnswer) actions.Again = () => chat.again(message);
  if (isAnswer && message.content && message.id === chat.tree.leaf) actions.Continue = () => chat.continue(message);
  actions.Branch = () => chat.onFork(chat.tree.copyTo(message));
  actions.Delete = () => chat.delete(message);
  return {
    name: isAnswer ? (message.model ?? chat.model) : "You",
    versions: { index, count: versions.length, onStep: (by) => chat.showVersion(versions[index + by]) },
    actions,
    onEdit: (text) => (isAnswer ? chat.rewrite(message, text) : chat.edit(message, text)),
  };
}
