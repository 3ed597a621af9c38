// What the session remembers, tier by tier, as the server tells it.

import { clock, count, make } from "./dom.js";

const TURNS_SHOWN = 12;

/** `told`: GET /v1/sessions/{id}/memory; `thumbOf`: a picture near a media time, or null. */
export function memoryView(told, thumbOf) {
  const sums = [
    ["long", "Long-term", sum(told.long_term)],
    ["short", "Summaries", sum(told.summaries)],
    ["talk", told.talk ? "Talk" : "Questions and answers", sum(told.talk ?? told.qa?.entries)],
    ["live", "Live window", Math.max(0, (told.window?.tokens ?? 0) - (told.window?.head_tokens ?? 0))],
  ].filter(([, , tokens]) => tokens > 0);
  return [
    sums.length ? bar(sums) : null,
    tier("Long-term", told.long_term, passage, "Nothing yet: summaries are folded into it as time goes by."),
    tier("Summaries", told.summaries, passage, "None yet: one is written for each stretch of time."),
    ...(told.talk ? [tier("Said lately", told.talk, spoken, "Nothing was said yet.")] : replay(told, thumbOf)),
  ].filter(Boolean);
}

function replay(told, thumbOf) {
  const turns = told.window.turns.slice(-TURNS_SHOWN).toReversed();
  const { window, chunk, budget } = told;
  const room = `${count(window.frames, "picture")}, ${window.tokens} of ${budget.window_tokens} tokens; the stretch has ${
    chunk.frames} of ${chunk.closes_at_frames} pictures`;
  return [
    told.pending.length + told.gaps.length
      ? make("p", { className: "quiet" }, [
          told.pending.length ? `${count(told.pending.length, "summary", "summaries")} being written` : null,
          told.gaps.length ? `${count(told.gaps.length, "gap")} without words` : null,
        ].filter(Boolean).join(" · "))
      : null,
    tier("Live window", turns, (turn) => shown(turn, thumbOf), "Nothing was shown yet.", room, window.turns.length),
    tier("Questions and answers", told.qa.entries, asked, "Nothing was asked yet."),
  ];
}

function bar(sums) {
  const total = sums.reduce((all, [, , tokens]) => all + tokens, 0);
  const parts = sums.map(([kind, name, tokens]) => {
    const part = make("span", { className: `part ${kind}`, title: `${name}: ${tokens} tokens` });
    part.style.flexGrow = String(tokens);
    return part;
  });
  const text = sums.map(([, name, tokens]) => `${name} ${tokens}`).join(", ");
  return make("div", { className: "budget" },
    make("div", { className: "bar", attrs: { role: "img", "aria-label": `Tokens: ${text}` } }, ...parts),
    make("ul", { className: "legend" },
      ...sums.map(([kind, name, tokens]) => make("li", { className: kind }, `${name} ${tokens}`))),
    make("p", { className: "quiet" }, `${total} tokens in all`));
}

function tier(title, entries = [], show, empty, more = "", size = entries.length) {
  return make("section", { className: "tier" },
    make("h3", {}, title, make("span", { className: "quiet" }, ` ${size}`)),
    more ? make("p", { className: "quiet" }, more) : null,
    entries.length
      ? make("ul", {}, ...entries.map((entry) => make("li", {}, ...[show(entry)].flat())))
      : make("p", { className: "quiet empty" }, empty));
}

/** What was said, without the tag that stands for the decision; a bare tag as its name. */
function wordsOf(said) {
  const [, tag, rest] = /^\s*<\/?([a-z_]+)>\s*([^]*)$/i.exec(said ?? "") ?? [null, "", said ?? ""];
  return rest.trim() || tag;
}

const sum = (entries = []) => entries.reduce((all, entry) => all + (entry.tokens ?? 0), 0);

const when = (from, to = from) => make("time", {}, from === to ? clock(from) : `${clock(from)} – ${clock(to)}`);

const passage = ({ start_ms, end_ms, text }) => [when(start_ms, end_ms), make("p", {}, text)];

const asked = ({ media_time_ms, kind, text }) => [when(media_time_ms), make("span", { className: "kind" }, kind), make("p", {}, text)];

const spoken = ({ start_ms, who, text, frames, cut }) => [
  when(start_ms), make("span", { className: "kind" }, who),
  make("p", {}, frames ? [count(frames, "picture"), text].filter(Boolean).join(": ") : text, cut ? " (the rest was not heard)" : ""),
];

function shown({ media_time_ms, frames, text, said }, thumbOf) {
  const thumb = thumbOf(frames.at(-1)?.media_time_ms ?? media_time_ms);
  return [
    thumb ? make("img", { src: thumb, alt: "", width: 48 }) : null,
    when(media_time_ms),
    make("p", {}, wordsOf(said) || text.trim() || count(frames.length, "picture")),
  ].filter(Boolean);
}
