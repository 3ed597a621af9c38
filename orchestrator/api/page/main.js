// The page: elements and what they do.

import { get, setKey } from "./access.js";
import { Capture, loudness } from "./capture.js";
import { Conversation } from "./conversation.js";
import { $, duration, make, pressed, tabs } from "./dom.js";
import { Insight } from "./insight.js";
import { keep } from "./keep.js";
import { notices } from "./notices.js";
import { Picture } from "./picture.js";
import { Player } from "./player.js";
import { Plot } from "./plots.js";
import { Session } from "./session.js";
import { Timeline } from "./timeline.js";
import { FRAME_MS, Uplink } from "./uplink.js";
import { Wire } from "./wire.js";

const STATES = {
  idle: "Not started", connecting: "Connecting", open: "Live", waiting: "Reconnecting", resuming: "Resuming",
  over: "Ended", refused: "Refused",
};
const ENDS = {
  client_close: "The session has ended.",
  replaced: "The session goes on in another window.",
  idle_ttl_expired: "The session ended: nothing happened for a while.",
  disconnect_grace_expired: "The session ended while the connection was lost.",
  unreachable: "The server does not answer any more.",
  shutdown: "The server is shutting down.",
};

const wire = new Wire();
const player = new Player();
const capture = new Capture();
const picture = new Picture($("preview"), $("still"));
const uplink = new Uplink(wire);
const conversation = new Conversation($("said"), $("said-empty"), $("caption"));
const timeline = new Timeline($("timeline"), $("timeline-empty"), $("ribbon"));
const percent = (value) => `${Math.round(value)}%`;
const plots = {
  latency: new Plot($("plot-latency"), $("latency-now"), duration, 200),
  lag: new Plot($("plot-lag"), $("lag-now"), duration, 1000),
  reuse: new Plot($("plot-reuse"), $("reuse-now"), percent, 100),
};
const session = new Session({ wire, player, conversation, timeline, plots, watching: () => Boolean(picture.kind) });
const insight = new Insight(session, wire, plots, timeline);

let model = null; // of GET /v1/models
let context = null; // of sound
let lock = null; // on the screen
let state = "idle";
let asking = null; // a question from before the session was there

// --- access ---------------------------------------------------------------------------------------------

/** Until the server lets us in. */
async function enter() {
  for (;;) {
    try {
      model = (await get("/v1/models")).data[0];
      break;
    } catch (refused) {
      if (!refused.wantsKey) {
        notices.show(refused.message, { code: refused.code, bad: true });
        await notices.retry();
      } else {
        await askKey(refused.message);
      }
    }
  }
  notices.clear();
  $("key-change").hidden = !keep.key();
  $("model").textContent = model.id;
  $("persona").replaceChildren(...model.personas.map((name) => make("option", { value: name }, name)));
  $("persona").disabled = !model.personas.length;
  uplink.fit({}, model.audio_input);
  hears(Boolean(model.audio_input));
}

function askKey(why) {
  const dialog = $("key-ask"), field = $("key");
  $("key-why").textContent = why;
  field.value = "";
  if (!dialog.open) dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      const given = field.value.trim();
      if (!given) return;
      setKey(given);
      field.value = "";
      dialog.close();
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault(); // there is nothing behind it to go to
  });
}

/** Text mode where nothing on the other side can listen. */
function hears(can) {
  $("microphone").disabled = !can;
  $("deaf").hidden = can;
}

// --- the session ----------------------------------------------------------------------------------------

async function start() {
  notices.clear();
  conversation.clear();
  timeline.clear();
  session.clear();
  Object.values(plots).forEach((plot) => plot.clear());
  insight.clear();
  await openSound();
  wire.start(await configuration());
}

async function configuration() {
  const instructions = $("instructions").value.trim(), sample = $("voice-sample").files[0];
  const heard = model.audio_input;
  const exact = heard?.exact;
  return {
    type: "realtime",
    include: ["vigil.tick", "vigil.playback", "conversation.item.input_audio_transcription.delta"],
    extra_body: { auto_response: true },
    ...(heard ? { input_audio_format: exact ? heard.format : "pcm16", sample_rate_hz: exact ? heard.rate_hz : 16000 } : {}),
    ...(model.audio_output?.default === false ? { modalities: ["text", "audio"] } : {}),
    ...($("persona").value ? { persona: $("persona").value } : {}),
    ...(instructions ? { instructions } : {}),
    ...(sample ? { ref_audio: await dataUrl(sample) } : {}),
  };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

async function openSound() {
  if (context) return;
  try {
    context = new AudioContext({ latencyHint: "interactive" });
    await player.open(context);
  } catch {
    context = null;
    notices.show("This browser plays no sound here; answers are written.", { code: "no_sound" });
  }
}

function wake() {
  if (context?.state === "suspended") context.resume().then(() => notices.drop("wake"));
}

function came(next) {
  state = next;
  $("state").textContent = STATES[next] ?? next;
  $("state").dataset.state = next;
  const running = ["connecting", "open", "waiting", "resuming"].includes(next);
  const [on, off] = running ? ["end", "start"] : ["start", "end"];
  const moves = document.activeElement === $(off); // the keyboard stays where it was
  $(on).hidden = false;
  $(off).hidden = true;
  if (moves) $(on).focus();
  $("start").textContent = next === "over" ? "Start again" : "Start";
  $("instructions").disabled = $("voice-sample").disabled = running;
  flow();
  stayAwake();
}

/** A phone that is pointed at something is not touched, and would go to sleep. */
async function stayAwake() {
  const wanted = state === "open" && !document.hidden;
  if (wanted && !lock) lock = await navigator.wakeLock?.request("screen").catch(() => null);
  else if (!wanted && lock) lock = (await lock.release(), null);
}

function flow() {
  $("interrupt").disabled = !(state === "open" && session.answering);
  $("badge-see").hidden = !(state === "open" && picture.kind);
  $("badge-hear").hidden = !(state === "open" && !uplink.muted);
  $("badge-speak").hidden = !player.sounding;
}

wire.addEventListener("state", ({ detail }) => came(detail));
wire.addEventListener("event", ({ detail }) => session.handle(detail));
wire.addEventListener("over", ({ detail }) => {
  player.flush();
  came("over");
  notices.show(ENDS[detail] ?? `The session ended: ${String(detail).replaceAll("_", " ")}.`, { code: detail });
  insight.refresh();
});
wire.addEventListener("refused", async ({ detail: { refused, lost } }) => {
  came(lost ? "over" : "refused");
  if (refused.wantsKey) {
    await askKey(refused.message);
    await enter();
    const kept = keep.session();
    if (kept) wire.start(null, kept);
    else came("idle");
    return;
  }
  const told = lost ? "The earlier session is over; start a new one." : refused.message;
  notices.show(told, { code: refused.code, bad: !lost });
});
session.addEventListener("session", () => {
  uplink.fit(session.view.capabilities, model.audio_input);
  hears(uplink.hears);
  if (!uplink.hears) for (const name of ["microphone", "file"]) capture.turn(name, false);
  else if (!capture.has("file")) listenToFile();
  heard();
  if (session.view.persona) $("persona").value = session.view.persona;
  if (asking && session.ask(asking)) asking = null;
});
session.addEventListener("notice", ({ detail }) => notices.show(detail.message, detail));
session.addEventListener("flow", flow);
player.addEventListener("sounding", flow);
session.addEventListener("query", () => {
  $("query").hidden = !session.query;
  $("query-text").textContent = session.query?.text ?? "";
});

// --- pictures and sound ---------------------------------------------------------------------------------

async function show(kind, how) {
  try {
    if (picture.kind === kind && kind !== "file") picture.stop();
    else await how();
    devices();
  } catch (fault) {
    notices.show(deviceFault(fault, kind === "screen" ? "the screen" : `the ${kind}`), { code: kind, bad: true });
  }
}

async function listen(on) {
  if (on && !capture.has("microphone")) {
    try {
      await openSound();
      wake();
      await capture.microphone(context, uplink.input.rate, $("microphone-pick").value);
      devices();
    } catch (fault) {
      notices.show(deviceFault(fault, "the microphone"), { code: "microphone", bad: true });
      return;
    }
  }
  capture.turn("microphone", on);
  heard();
}

/** A video's own sound goes up with it, where somebody can listen. */
async function listenToFile() {
  if (picture.kind !== "file" || !uplink.hears) return;
  await openSound();
  wake();
  if (context && picture.kind === "file") await capture.video(context, uplink.input.rate, $("preview"));
  heard();
}

function heard() {
  uplink.muted = !capture.flowing;
  const on = capture.on("microphone");
  pressed($("microphone"), on);
  $("microphone").textContent = on ? "Mute" : capture.has("microphone") ? "Unmute" : "Microphone";
  $("file-sound").hidden = !capture.has("file");
  pressed($("file-sound"), capture.on("file"));
  $("level").hidden = !capture.flowing;
  flow();
}

function deviceFault(fault, what) {
  if (fault.name === "NotAllowedError") return `The browser was not allowed to use ${what}.`;
  if (fault.name === "NotFoundError") return `There is nothing to use as ${what}.`;
  if (!navigator.mediaDevices) return `A browser lets pages use ${what} over HTTPS or on this machine only.`;
  return `${what} could not be used: ${fault.message}`;
}

/** Names are told only once something was allowed. */
async function devices() {
  const all = (await navigator.mediaDevices?.enumerateDevices().catch(() => [])) ?? [];
  for (const [pick, kind, name] of [["camera-pick", "videoinput", "camera"], ["microphone-pick", "audioinput", "microphone"]]) {
    const chosen = $(pick).value;
    const found = all.filter((device) => device.kind === kind && device.deviceId && device.deviceId !== "default");
    $(pick).replaceChildren(
      make("option", { value: "" }, `Default ${name}`),
      ...found.map(({ deviceId, label }, i) => make("option", { value: deviceId }, label || `${name} ${i + 1}`)),
    );
    $(pick).value = [...$(pick).options].some((option) => option.value === chosen) ? chosen : "";
  }
}

setInterval(async () => {
  if (!wire.open || !picture.kind) return;
  const at = session.mediaTime, frame = await picture.grab();
  if (frame && uplink.frame(frame.jpeg, at)) session.keepFrame(at, frame.thumb);
}, FRAME_MS);

capture.addEventListener("chunk", ({ detail }) => {
  if (wire.open) uplink.sound(detail);
  $("level").value = loudness(detail);
});
capture.addEventListener("lost", () => {
  heard();
  notices.show("The microphone is gone.", { code: "microphone", bad: true });
});
picture.addEventListener("change", () => {
  $("view").dataset.showing = picture.kind ?? "nothing";
  pressed($("show-camera"), picture.kind === "camera");
  pressed($("show-screen"), picture.kind === "screen");
  pressed($("show-file"), picture.kind === "file" || picture.kind === "still");
  if (picture.kind !== "file") {
    capture.remove("file");
    $("preview").muted = true;
  }
  heard();
});

// --- elements -------------------------------------------------------------------------------------------

$("start").onclick = () => start();
$("end").onclick = () => wire.end();
$("interrupt").onclick = () => session.interrupt();
$("microphone").onclick = () => listen(!capture.on("microphone"));
$("file-sound").onclick = () => {
  capture.turn("file", !capture.on("file"));
  heard();
};
$("show-camera").onclick = () => show("camera", () => picture.camera($("camera-pick").value));
$("show-screen").onclick = () => show("screen", () => picture.screen());
$("show-file").onclick = () => (["file", "still"].includes(picture.kind) ? picture.stop() : $("file").click());
$("file").onchange = () => {
  const [file] = $("file").files;
  $("file").value = "";
  if (file) show("file", () => picture.file(file).then(listenToFile));
};
$("camera-pick").onchange = () => picture.kind === "camera" && show("other camera", () => picture.camera($("camera-pick").value));
$("microphone-pick").onchange = async () => {
  if (!capture.has("microphone")) return;
  const on = capture.on("microphone");
  capture.remove("microphone");
  await listen(on);
};
$("persona").onchange = () => wire.send({ type: "session.update", session: { persona: $("persona").value } });
$("clear").onclick = () => session.clearQuery();
$("ask").onsubmit = (event) => {
  event.preventDefault();
  const text = $("ask-text").value.trim();
  if (!text) return;
  $("ask-text").value = "";
  if (session.ask(text)) return;
  asking = text; // once there is somebody to ask
  if (["idle", "over", "refused"].includes(state)) start();
};
$("key-change").onclick = () => {
  setKey(null);
  location.reload();
};
for (const name of ["pointerdown", "keydown"]) addEventListener(name, wake);
navigator.mediaDevices?.addEventListener?.("devicechange", devices);
tabs(document.querySelector("[role=tablist]"), (name) => insight.shown(name));

document.addEventListener("visibilitychange", () => {
  if (document.hidden) lock = null; // browsers let go of it then
  stayAwake();
});

addEventListener("pagehide", () => {
  if (!wire.sessionId || state === "over") return;
  wire.leave();
  const uses = { camera: picture.kind === "camera", microphone: capture.has("microphone"), muted: !capture.on("microphone") };
  keep.setStory({ id: wire.sessionId, uses, said: conversation.story(), decisions: timeline.story(), session: session.story() });
});

// --- begin ----------------------------------------------------------------------------------------------

async function resume() {
  const kept = keep.session(), story = keep.story();
  keep.setStory(null);
  if (!kept) return;
  if (story?.id === kept.id) {
    conversation.restore(story.said);
    timeline.restore(story.decisions);
    session.restore(story.session);
  }
  await openSound();
  if (context?.state === "suspended") notices.show("Click or press a key to hear the assistant again.", { code: "wake" });
  wire.start(null, kept);
  if (story?.uses.camera) show("camera", () => picture.camera($("camera-pick").value));
  if (story?.uses.microphone) {
    session.addEventListener("session", async () => {
      await listen(true);
      if (story.uses.muted) listen(false);
    }, { once: true });
  }
}

came("idle");
devices();
await enter();
await resume();
document.documentElement.dataset.ready = "yes";
