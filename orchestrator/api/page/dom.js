// Small helpers around the document. Text is set as text: nothing from outside is ever parsed as HTML.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children: make("li", {className: "x"}, "text", other). */
export function make(name, props = {}, ...children) {
  const { dataset = {}, attrs = {}, ...own } = props;
  const element = Object.assign(document.createElement(name), own);
  Object.assign(element.dataset, dataset);
  for (const [attr, value] of Object.entries(attrs)) element.setAttribute(attr, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const pressed = (button, on) => button.setAttribute("aria-pressed", String(on));

/** Milliseconds of media time as 1:05 or 2:01:05. */
export function clock(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

export const duration = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms)} ms`);

export const count = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/** A code of the server as words: `not_worth_saying` is "not worth saying". */
export const words = (code) => String(code).replaceAll("_", " ");

/** Tabs as the ARIA pattern has them: arrows move, Home and End jump. */
export function tabs(list, onChosen) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const choose = (tab, focus) => {
    for (const each of all) {
      const on = each === tab;
      each.setAttribute("aria-selected", String(on));
      each.tabIndex = on ? 0 : -1;
      $(each.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) tab.focus();
    onChosen(tab.id.replace("tab-", ""));
  };
  list.addEventListener("click", ({ target }) => target.role === "tab" && choose(target));
  list.addEventListener("keydown", (event) => {
    const at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    choose(all[(to + all.length) % all.length], true);
  });
  return { choose: (name) => choose($(`tab-${name}`)) };
}
