// What the server's events mean for the page. Knows no elements, only the parts that show things.

import { words } from "./dom.js";

const FRAMES_KEPT = 400;
const RACES = new Set(["response_not_active", "response_already_active", "playback_ack_too_late", "playback_item_not_found"]);

export class Session extends EventTarget {
  #parts;
  #texts = new Map(); // so far, by response or item
  #frames = []; // {at, thumb}, oldest first
  #acked = new Map(); // ms by response
  #speaking = null; // the response that is being made
  #last = null; // the newest response
  query = null; // {id, text}
  standing = false; // a question stands until it is cleared
  view = null;

  /** parts: wire, player, conversation, timeline, plots {latency, lag, reuse}, watching(): is anything shown? */
  constructor(parts) {
    super();
    this.#parts = parts;
    parts.player.addEventListener("heard", ({ detail }) => this.#heard(detail));
  }

  // --- what the user does -------------------------------------------------------------------------------

  ask(text) {
    const id = `item_${crypto.randomUUID().replaceAll("-", "")}`;
    const item = { id, type: "message", role: "user", content: [{ type: "input_text", text }] };
    if (!this.#parts.wire.send({ type: "conversation.item.create", item })) return false;
    this.#askForWords();
    return true;
  }

  /** A model that decides with each picture would never answer where there is none. */
  #askForWords() {
    if (!this.#parts.watching() && this.view?.capabilities.supports_text_only_turn)
      this.#parts.wire.send({ type: "response.create" });
  }

  clearQuery() {
    if (this.query) this.#parts.wire.send({ type: "conversation.item.delete", item_id: this.query.id });
  }

  /** Silence first, then what was heard is told, then the rest is cancelled. */
  async interrupt() {
    const { player, conversation, wire } = this.#parts;
    const unheard = player.sounding;
    this.#heard(await player.flush());
    conversation.caption(null);
    if (this.#speaking) wire.send({ type: "response.cancel", response_id: this.#speaking });
    else if (unheard && this.#last) wire.send({ type: "output_audio_buffer.clear", response_id: this.#last });
    this.#tell("flow");
  }

  /** A response is being made, or is still to be heard. */
  get answering() {
    return Boolean(this.#speaking) || this.#parts.player.sounding;
  }

  // --- pictures -----------------------------------------------------------------------------------------

  get mediaTime() {
    return Date.now() - this.#parts.wire.began;
  }

  keepFrame(at, thumb) {
    this.#frames.push({ at, thumb });
    this.#frames.splice(0, this.#frames.length - FRAMES_KEPT);
  }

  /** The newest picture that was there at that time. */
  thumbAt(at) {
    return this.#frames.findLast((frame) => frame.at <= at + 1)?.thumb ?? null;
  }

  // --- what the server says -----------------------------------------------------------------------------

  handle(event) {
    const { conversation, timeline } = this.#parts;
    switch (event.type) {
      case "session.created":
        this.#detect(event.session);
      // falls through
      case "session.updated":
      case "session.resumed":
        this.view = event.session;
        this.standing = Boolean(event.session.capabilities?.supports_reencode_context);
        return this.#tell("session");
      case "vigil.tick":
        return this.#ticked(event);
      case "vigil.delegation":
        timeline.delegated(event, this.mediaTime);
        return this.#tell("flow");
      case "vigil.playback":
        return this.#parts.player.pause(event.action === "pause");
      case "vigil.notice":
        return this.#tell("notice", { code: event.code, message: event.message });
      case "error":
        if (!RACES.has(event.error?.code))
          this.#tell("notice", { code: event.error?.code, message: event.error?.message, bad: true });
        return;
      case "conversation.item.created":
        return this.#item(event.item);
      case "conversation.item.deleted":
        if (this.query?.id === event.item_id) this.#query(null);
        return;
      case "conversation.item.input_audio_transcription.completed":
        return this.#understood(event.item_id, event.transcript?.trim() ?? "");
      case "conversation.item.input_audio_transcription.delta": {
        const text = (this.#texts.get(event.item_id) ?? "") + event.delta;
        this.#texts.set(event.item_id, text);
        return conversation.caption(text);
      }
      case "overlap.decision":
        if (event.action === "barge_in") this.#silence(null);
        return;
      default:
        return this.#ofResponse(event);
    }
  }

  #ofResponse(event) {
    const id = event.response_id ?? event.response?.id;
    const { player, conversation, timeline } = this.#parts;
    switch (event.type) {
      case "response.created":
        this.#speaking = this.#last = id;
        this.#texts.set(id, "");
        timeline.said(id, "");
        return this.#tell("flow");
      case "response.output_audio.delta":
        return player.play(id, event.delta, event.sample_rate_hz);
      case "response.output_audio.done":
        return player.complete(id);
      case "response.output_text.delta":
      case "response.output_audio_transcript.delta": {
        if (!this.#texts.has(id)) return;
        const text = this.#texts.get(id) + event.delta;
        this.#texts.set(id, text);
        conversation.assistant(id, text);
        return timeline.said(id, text);
      }
      case "output_audio_buffer.cleared":
        return this.#silence(id);
      case "response.done":
        return this.#done(id, event.response);
      case "response.listen":
        if (id && this.#speaking === id) this.#done(id, { status: "completed", output: [] });
    }
  }

  #done(id, { status, status_details: details, output }) {
    const { conversation, timeline, player } = this.#parts;
    const cut = status === "cancelled";
    if (cut) this.#silence(id);
    else player.complete(id);
    const part = output?.[0]?.content?.find((each) => each.transcript || each.text);
    const heard = part?.transcript ?? part?.text;
    const text = (cut ? heard : (heard ?? this.#texts.get(id)))?.trim() ?? "";
    conversation.finished(id, text, cut);
    timeline.said(id, text, status);
    if (status === "failed") this.#tell("notice", { code: details?.reason, message: `An answer failed: ${words(details?.reason ?? "")}`, bad: true });
    this.#texts.delete(id);
    if (this.#speaking === id) this.#speaking = null;
    this.#tell("flow");
  }

  #ticked(tick) {
    const { timeline, plots } = this.#parts;
    timeline.decided(tick, this.thumbAt(tick.media_time_ms));
    plots.latency.add(tick.latency_ms);
    plots.lag.add(Math.max(0, this.mediaTime - tick.media_time_ms));
    if (tick.prompt_tokens) plots.reuse.add(((tick.cached_tokens ?? 0) / tick.prompt_tokens) * 100);
    this.#tell("tick");
  }

  #item(item) {
    if (item.type !== "message" || item.role !== "user") return;
    const text = item.content?.map((part) => part.text ?? part.transcript ?? "").join(" ").trim();
    if (!text) return;
    this.#parts.conversation.user(item.id, text);
    if (this.standing) this.#query({ id: item.id, text });
  }

  /** What the user said, in full; it replaces what was shown while it was said. */
  #understood(id, text) {
    this.#texts.delete(id);
    if (!text) return;
    this.#parts.conversation.caption(text);
    this.#parts.conversation.user(id, text);
    if (!this.standing) return;
    this.#query({ id, text });
    this.#askForWords();
  }

  /** A model that is given ears takes turns by the server's detector; one that hears by itself needs none. */
  #detect({ capabilities, turn_detection: detection }) {
    const hears = capabilities?.optional_input_modalities?.includes("audio");
    if (hears && capabilities.supports_reencode_context && !detection)
      this.#parts.wire.send({ type: "session.update", session: { turn_detection: { type: "server_vad" } } });
  }

  #query(query) {
    this.query = query;
    this.#tell("query");
  }

  /** Others ended it: be silent, and say what was heard. */
  async #silence(id) {
    this.#parts.conversation.caption(null);
    this.#heard(await this.#parts.player.flush(id));
    this.#tell("flow");
  }

  #heard(news) {
    for (const [id, ms] of news) {
      if (this.#acked.get(id) === ms) continue;
      const sent = this.#parts.wire.send({ type: "playback.ack", response_id: id, item_id: `item_${id}`, played_ms: ms });
      if (sent) this.#acked.set(id, ms);
    }
    while (this.#acked.size > 64) this.#acked.delete(this.#acked.keys().next().value);
  }

  // --- over a reload ------------------------------------------------------------------------------------

  story() {
    return { query: this.query, frames: this.#frames.slice(-40) };
  }

  restore({ query, frames }) {
    this.#frames = frames ?? [];
    this.#query(query ?? null);
  }

  clear() {
    this.#texts.clear();
    this.#acked.clear();
    this.#frames = [];
    this.#speaking = this.#last = null;
    this.view = null;
    this.#query(null);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
