// One session over a WebSocket: opened, kept alive, acknowledged, and resumed when the line breaks.

import { get, openSocket, Refused } from "./access.js";
import { keep } from "./keep.js";

const HEARTBEAT_MS = 15000;
const ACK_MS = 500;
const HELD_MS = 10000; // a tab that is doubled comes with what this one had when it was, however slowly it loads
const OPEN_MS = 30000;
const WAITS_MS = [250, 500, 1000, 2000, 4000, 4000, 4000, 4000, 4000, 4000];
const BUFFERED_MAX = 2 * 1024 * 1024;
const FINAL = new Set([
  "invalid_session_resume", "session_resume_expired", "unsupported_session_resume", "invalid_resume_token",
  "session_resume_conflict",
]);
const GOES_ON = new Set(["shutdown", "lease_lost"]); // the process ends; the session is there after it, or elsewhere

export class Wire extends EventTarget {
  #socket = null;
  #over = false;
  #open = false;
  #attempt = 0;
  #timers = [];
  #session = null; // {id, token, seq, began}
  #acked = 0;
  #noted = []; // [number, when]: events that are noted and not acknowledged yet
  #opening = null;

  get open() {
    return this.#open;
  }

  get sessionId() {
    return this.#session?.id ?? null;
  }

  /** Wall clock (ms) of media time 0. */
  get began() {
    return this.#session?.began ?? Date.now();
  }

  /** Open a session with this configuration, or come back to `kept`. */
  start(config, kept = null) {
    this.#over = false;
    this.#session = kept;
    this.#acked = kept?.seq ?? 0;
    this.#noted = [];
    this.#connect(config);
  }

  /** False when it could not be sent. Media waits for nobody: what a slow line cannot take is left out. */
  send(event, { media = false } = {}) {
    if (!this.#open || this.#socket?.readyState !== WebSocket.OPEN) return false;
    if (media && this.#socket.bufferedAmount > BUFFERED_MAX) return false;
    this.#socket.send(JSON.stringify({ event_id: `evt_${crypto.randomUUID().replaceAll("-", "")}`, ...event }));
    return true;
  }

  end() {
    if (this.send({ type: "session.close" })) return;
    this.#finish("client_close");
  }

  /** The page goes away: what it has shown is not to be sent again. */
  leave() {
    if (!this.#over) this.#store();
  }

  #connect(config) {
    let socket;
    try {
      socket = openSocket();
    } catch (refused) {
      this.#fail(refused);
      return;
    }
    this.#socket = socket;
    this.#emit("state", this.#session ? "resuming" : "connecting");
    this.#opening = setTimeout(() => socket.close(), OPEN_MS);
    socket.onopen = () => socket.send(JSON.stringify(this.#first(config)));
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data), socket);
    socket.onclose = ({ code, reason }) => this.#closed(socket, code, reason, config);
  }

  #first(config) {
    if (!this.#session) return { type: "session.update", session: config };
    const { id, token, seq } = this.#session;
    return { type: "session.resume", session_id: id, resume_token: token, last_received_server_event_seq: seq };
  }

  #receive(event, socket) {
    if (socket !== this.#socket) return;
    const seq = event.server_event_seq;
    if (seq !== undefined && this.#session) {
      if (seq <= this.#session.seq) return; // shown before the line broke
      this.#session.seq = seq;
    }
    switch (event.type) {
      case "session.created":
        this.#session = { id: event.session.id, token: event.resume_token ?? null, seq: 0, began: Date.now() };
        this.#begun();
        break;
      case "session.resumed":
        this.#session.token = event.resume_token;
        this.#begun();
        break;
      case "session.resync_required":
        this.#session.token = null;
        break;
      case "session.replaced":
        this.#finish("replaced");
        break;
      case "session.closed":
      case "session.expired":
        if (!GOES_ON.has(event.reason) || !this.#session?.token) this.#finish(event.reason);
        break;
      case "error":
        if (!this.#open && this.#session && event.error?.retryable) return; // the line ends, and it tries again
        if (!this.#open) {
          this.#over = true;
          const { code, message } = event.error ?? {};
          this.#fail(new Refused(code ?? event.code, message ?? event.error, 0), FINAL.has(code));
          return;
        }
    }
    this.#emit("event", event);
  }

  #begun() {
    clearTimeout(this.#opening);
    this.#open = true;
    this.#attempt = 0;
    this.#store();
    this.#timers = [
      setInterval(() => this.send({ type: "session.heartbeat" }), HEARTBEAT_MS),
      setInterval(() => this.#acknowledge(), ACK_MS),
    ];
    this.#emit("state", "open");
  }

  /** What is acknowledged is forgotten by the server, so it is noted here a good while before. */
  #acknowledge() {
    const now = Date.now(), seq = this.#session?.seq ?? 0;
    if (seq > (this.#noted.at(-1)?.[0] ?? this.#acked) && this.#store()) this.#noted.push([seq, now]);
    const due = this.#noted.findLast(([, at]) => now - at >= HELD_MS)?.[0];
    if (due === undefined || !this.send({ type: "session.event_ack", server_event_seq: due })) return;
    this.#acked = due;
    this.#noted = this.#noted.filter(([noted]) => noted > due);
  }

  #store() {
    return keep.setSession(this.#session?.token ? this.#session : null);
  }

  #closed(socket, code, reason, config) {
    if (socket !== this.#socket) return;
    this.#quiet();
    if (this.#over) return;
    if (this.#session && !this.#session.token) this.#finish(reason || "disconnect");
    else this.#again(config);
  }

  /** A handshake that was refused looks like any other lost line; a plain request says why. */
  async #again(config) {
    const fresh = !this.#session;
    try {
      await get("/v1/models");
      if (fresh) throw new Refused("closed", "The connection was closed before a session began.", 0);
    } catch (refused) {
      if (this.#over) return;
      if (fresh || refused.status === 401 || refused.status === 403) {
        this.#fail(refused);
        return;
      }
    }
    if (this.#over) return;
    if (this.#attempt >= WAITS_MS.length) {
      this.#finish("unreachable");
      return;
    }
    this.#emit("state", "waiting");
    const wait = WAITS_MS[this.#attempt++] * (0.5 + Math.random() / 2);
    setTimeout(() => !this.#over && this.#connect(config), wait);
  }

  #fail(refused, lost = false) {
    if (lost || !this.#session) keep.setSession(null);
    this.#over = true;
    this.#quiet();
    this.#emit("refused", { refused, lost });
  }

  #finish(reason) {
    if (this.#over) return;
    this.#over = true;
    keep.setSession(null);
    this.#quiet();
    this.#emit("over", reason);
  }

  #quiet() {
    this.#open = false;
    clearTimeout(this.#opening);
    this.#timers.forEach(clearInterval);
    this.#timers = [];
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
