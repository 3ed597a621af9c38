// Requests to the server that this page came from, with the key if one is asked for.

import { keep } from "./keep.js";

const DEADLINE_MS = 15000;

const WORDS = {
  invalid_api_key: "This key is not known here. Check it, or ask the operator for another.",
  invalid_token: "This token does not count here. Ask for a new one.",
  token_expired: "Your token has expired. Get a new one and enter it.",
  too_many_failed_logins: "Too many wrong keys from this address. Wait a minute, then try again.",
  origin_not_allowed: "This server does not take requests from this page's address.",
  host_not_allowed: "Without keys this server is used on its own machine only. Set up a key to use it from here.",
};

export class Refused extends Error {
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }

  /** Another key might help. */
  get wantsKey() {
    return this.status === 401;
  }
}

let key = keep.key();

export function setKey(given) {
  key = given || null;
  keep.setKey(key);
}

export const hasKey = () => Boolean(key);

/** JSON of one request. Throws Refused, also when nobody answers (`unreachable`). */
export async function get(path) {
  let reply;
  try {
    reply = await fetch(path, {
      headers: key ? { authorization: `Bearer ${key}` } : {},
      signal: AbortSignal.timeout(DEADLINE_MS),
      cache: "no-store",
    });
  } catch {
    throw new Refused("unreachable", "The server does not answer. Is it running?", 0);
  }
  const body = await reply.json().catch(() => ({}));
  if (reply.ok) return body;
  const error = body.error ?? {};
  throw new Refused(error.code ?? "refused", refusal(error, reply.status, Boolean(key)), reply.status);
}

function refusal(error, status, keyed) {
  if (status === 401 && !keyed) return "Enter your API key to use this server.";
  return WORDS[error.code] ?? error.message ?? `The server refused (${status}).`;
}

/** A socket to the session API. The key travels as a subprotocol: browsers can set no header. */
export function openSocket() {
  const url = new URL("/v1/realtime?duplex=1&autostart=0", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const offered = key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"];
  try {
    return new WebSocket(url, offered);
  } catch {
    throw new Refused("invalid_api_key", "This key has characters that no key has.", 401);
  }
}
