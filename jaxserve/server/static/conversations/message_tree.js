// The messages of one conversation as a tree: each version of a message is a branch, and one path is shown.

export class MessageTree {
  /** messages: {id, parent, role, content, …} each, parents before children; leaf: the id of the last one shown. */
  constructor(messages = [], leaf = null) {
    this.messages = new Map(messages.map((message) => [message.id, message]));
    this.leaf = leaf;
  }

  /** The messages from the first one to the leaf. */
  get path() {
    const path = [];
    for (let at = this.messages.get(this.leaf); at; at = this.messages.get(at.parent)) path.unshift(at);
    return path;
  }

  /** Adds a message below another one, or at the start (null), and shows it. */
  add(parent, fields) {
    const id = Math.max(0, ...this.messages.keys()) + 1;
    const message = { ...fields, id, parent };
    this.messages.set(id, message);
    this.leaf = id;
    return message;
  }

  /** All versions of a message, the oldest first. */
  versions({ parent }) {
    return this.children(parent);
  }

  children(parent) {
    return [...this.messages.values()].filter((message) => message.parent === parent);
  }

  /** Shows the path through a message to its newest descendant. */
  show({ id }) {
    this.leaf = id;
    for (let next; (next = this.children(this.leaf).at(-1)); ) this.leaf = next.id;
  }

  /** Deletes a message and all below it, and shows the version next to it or the path that ends above it. */
  remove(message) {
    const next = this.versions(message).filter((one) => one !== message).at(-1);
    const doomed = [message];
    for (const one of doomed) {
      this.messages.delete(one.id);
      doomed.push(...this.children(one.id));
    }
    if (next) this.show(next);
    else this.leaf = message.parent;
  }

  /** Copies of the messages down to one, without other versions. */
  copyTo(message) {
    const tree = new MessageTree([...this.messages.values()], message.id);
    const copy = new MessageTree();
    for (const { id, parent, ...fields } of tree.path) copy.add(copy.leaf, structuredClone(fields));
    return copy;
  }
}
