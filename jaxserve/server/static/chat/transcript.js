// The messages of the shown path, and where they are scrolled to.

import { MessageView } from "./message_view.js";

const END_PX = 40; // so close to the end, new text is followed

export class Transcript {
  constructor(list) {
    this.list = list;
    this.hello = list.querySelector("#hello");
    this.views = [];
  }

  /** Shows views in place of the present ones. views: arguments of `MessageView` each. */
  show(views) {
    for (const view of this.views) view.root.remove();
    this.views = views.map(([message, options]) => new MessageView(message, options));
    this.list.append(...this.views.map((view) => view.root));
    this.hello.hidden = this.views.length > 0;
  }

  viewOf(message) {
    return this.views.find((view) => view.message === message);
  }

  /** Whether messages may be changed; the controls for that are hidden meanwhile. */
  setBusy(isBusy) {
    this.list.classList.toggle("answering", isBusy);
  }

  /** Runs a change of the contents, and scrolls to the end if it was visible before, or if told to. */
  follow(change, always = false) {
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    const isAtEnd = always || scrollHeight - scrollTop - clientHeight < END_PX;
    change();
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}
