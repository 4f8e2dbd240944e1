// The messages of the shown path, and where they are scrolled to.

import { MessageView } from "./message_view.js";

const END_PX = 40; // so close to the end counts as at the end

export class Transcript {
  /** list: scrolls; its child `.messages` grows. The end stays in sight until the user scrolls up from it. */
  constructor(list) {
    this.list = list;
    this.messages = list.querySelector(".messages");
    this.hello = list.querySelector("#hello");
    this.views = [];
    this.isPinned = true;
    this.top = 0;
    list.addEventListener("scroll", () => this.onScroll());
    const observer = new ResizeObserver(() => this.isPinned && this.scrollToEnd());
    observer.observe(this.messages);
    observer.observe(list);
  }

  /** Only scrolling up unpins: text that arrives before this event is no reason. */
  onScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < END_PX;
    this.isPinned = isAtEnd || (this.isPinned && scrollTop >= this.top);
    this.top = scrollTop;
  }

  scrollToEnd() {
    this.isPinned = true;
    this.list.scrollTop = this.list.scrollHeight;
    this.top = this.list.scrollTop;
  }

  /** Shows views in place of the present ones. views: arguments of `MessageView` each. */
  show(views) {
    this.views = views.map(([message, options]) => new MessageView(message, options));
    this.messages.replaceChildren(...this.views.map((view) => view.root));
    this.hello.hidden = this.views.length > 0;
  }

  viewOf(message) {
    return this.views.find((view) => view.message === message);
  }

  /** Whether messages may be changed; the controls for that are hidden meanwhile. */
  setBusy(isBusy) {
    this.list.classList.toggle("answering", isBusy);
  }
}
