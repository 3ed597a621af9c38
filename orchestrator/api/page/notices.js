// Short messages: said once, closed by hand or when they no longer hold.

import { $, make } from "./dom.js";

const MAX = 4;

const found = (code) => [...$("notices").children].find((each) => each.dataset.code === code);

export const notices = {
  show(text, { code = "", bad = false } = {}) {
    this.drop(code);
    const close = make("button", { type: "button", className: "plain", attrs: { "aria-label": "Close this message" } }, "×");
    const notice = make("p", { className: bad ? "notice bad" : "notice", dataset: { code } }, make("span", {}, text), close);
    close.onclick = () => notice.remove();
    $("notices").append(notice);
    while ($("notices").children.length > MAX) $("notices").firstChild.remove();
  },

  drop(code) {
    found(code)?.remove();
  },

  clear() {
    $("notices").replaceChildren();
  },

  /** Resolves when the user wants to try again. */
  retry() {
    const button = make("button", { type: "button" }, "Try again");
    $("notices").append(button);
    return new Promise((resolve) => (button.onclick = () => (this.clear(), resolve())));
  },
};
