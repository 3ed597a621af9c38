// Who said what: a log of whole lines for everybody, and a caption of what is being said right now.

import { make } from "./dom.js";

const LINES_MAX = 200;
const CAPTION_CHARS = 180;
const CAPTION_MS = 6000;

export class Conversation {
  #list;
  #empty;
  #caption;
  #lines = [];
  #fade = 0;

  constructor(list, empty, caption) {
    this.#list = list;
    this.#empty = empty;
    this.#caption = caption;
  }

  user(id, text) {
    this.#put({ id, who: "user", text });
  }

  /** An answer as far as it has been written. Screen readers hear of it once it is whole. */
  assistant(id, text) {
    this.caption(text);
    const line = this.#lines.find((each) => each.id === id);
    if (line) line.text = text;
    else this.#lines.push({ id, who: "assistant", text, open: true });
  }

  /** It is over. `cut`: the user heard no more than `text` of it. */
  finished(id, text, cut) {
    const line = this.#lines.find((each) => each.id === id);
    if (line) this.#lines.splice(this.#lines.indexOf(line), 1);
    if (text || cut) this.#put({ id, who: "assistant", text: text || "", cut });
    if (cut) this.caption(null);
  }

  caption(text) {
    clearTimeout(this.#fade);
    const shown = text?.trim() ?? "";
    this.#caption.hidden = !shown;
    this.#caption.textContent = shown.length > CAPTION_CHARS ? `… ${shown.slice(-CAPTION_CHARS)}` : shown;
    if (shown) this.#fade = setTimeout(() => (this.#caption.hidden = true), CAPTION_MS);
  }

  clear() {
    this.#lines = [];
    this.#list.replaceChildren();
    this.#empty.hidden = false;
    this.caption(null);
  }

  story() {
    return this.#lines.filter((line) => !line.open).slice(-60);
  }

  restore(lines) {
    this.clear();
    for (const line of lines) this.#put(line);
  }

  #put(line) {
    if (this.#lines.some((each) => each.id === line.id && !each.open)) return;
    this.#lines.push(line);
    const near = this.#list.scrollHeight - this.#list.scrollTop - this.#list.clientHeight < 60;
    this.#list.append(
      make("li", { className: line.who },
        make("span", { className: "who" }, line.who === "user" ? "You" : "Vigil"),
        make("p", {}, line.text, line.cut ? make("em", { className: "quiet" }, " (interrupted)") : null)),
    );
    while (this.#list.children.length > LINES_MAX) this.#list.firstChild.remove();
    this.#lines.splice(0, this.#lines.length - LINES_MAX);
    this.#empty.hidden = true;
    if (near) this.#list.scrollTop = this.#list.scrollHeight;
  }
}
