"use strict";
(() => {
  const data = JSON.parse(document.getElementById("ticks").textContent);
  const slider = document.getElementById("slider");
  if (!slider || !data.index.length) return;
  document.documentElement.classList.add("js");
  slider.max = data.index.length - 1;

  const plots = document.getElementById("plots");
  const cursor = document.getElementById("cursor");
  const says = document.getElementById("says");
  const facts = document.getElementById("says-facts");
  const where = document.getElementById("says-where");
  const picture = document.getElementById("says-picture");
  const blank = document.getElementById("says-none");
  const film = [...document.querySelectorAll(".film button")];
  const pictures = film.map((b) => ({ tick: Number(b.dataset.tick), src: b.querySelector("img").src }));

  const number = (v) => (v === null || v === undefined ? "–" : Number(v).toLocaleString("en").replace(/,/g, " "));

  // The thumbnail taken at a tick, or the last one before it.
  const pictureAt = (tick) => {
    let low = 0, high = pictures.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pictures[middle].tick <= tick) low = middle + 1; else high = middle;
    }
    return low ? pictures[low - 1] : null;
  };

  const show = (at) => {
    const n = Math.min(Math.max(0, Number(at)), data.index.length - 1);
    slider.value = n;
    const label = data.labels[data.kind[n]];
    const text = data.text[n];
    slider.setAttribute("aria-valuetext", `Tick ${data.tick[n]}, ${data.time[n]}, ${label}${text ? ": " + text : ""}`);
    where.textContent = `Tick ${data.tick[n]} · ${data.time[n]} · ${label}`;
    says.textContent = text || "";
    const cached = data.cached[n];
    facts.textContent = data.prompt[n]
      ? `${number(data.latency[n])} ms · ${number(data.prompt[n])} prompt tokens` +
        (cached === null ? "" : `, ${number(data.prompt[n] - cached)} new`) +
        ` · ${number(data.frames[n])} frames in window ${number(data.window[n])}`
      : "No engine call at this tick.";
    const shot = pictureAt(data.tick[n]);
    picture.hidden = !shot;
    blank.hidden = Boolean(shot);
    if (shot) {
      picture.src = shot.src;
      picture.alt = shot.tick === data.tick[n] ? "The newest frame of this tick" : `The frame of tick ${shot.tick}`;
    }
    cursor.style.left = `${(100 * (data.index[n] + 0.5)) / data.total}%`;
    cursor.hidden = false;
  };

  // The first kept row at or after a row of the run.
  const keptAt = (row) => {
    let low = 0, high = data.index.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.index[middle] < row) low = middle + 1; else high = middle;
    }
    return low;
  };

  slider.addEventListener("input", () => show(slider.value));
  const follow = (event) => {
    const box = plots.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    show(keptAt(Math.min(data.total - 1, Math.max(0, Math.floor(share * data.total)))));
  };
  plots.addEventListener("pointerdown", follow);
  plots.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" || event.buttons) follow(event);
  });
  const places = new Map(data.tick.map((tick, n) => [tick, n]));
  for (const button of document.querySelectorAll("button[data-tick]")) {
    button.addEventListener("click", () => {
      const n = places.get(Number(button.dataset.tick));
      if (n === undefined) return;
      show(n);
      if (!button.closest(".film")) document.getElementById("reader").scrollIntoView({ block: "center" });
    });
  }
  const spoke = data.kind.findIndex((k) => ["response", "delegate"].includes(data.kinds[k]));
  show(Math.max(0, spoke));
})();
