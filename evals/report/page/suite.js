"use strict";
(() => {
  const filters = document.querySelector(".filters");
  if (!filters) return;
  filters.hidden = false;
  const buttons = [...filters.querySelectorAll("button")];
  const cards = [...document.querySelectorAll(".card")];
  filters.addEventListener("click", (event) => {
    const chosen = event.target.closest("button");
    if (!chosen) return;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
    for (const card of cards) card.hidden = Boolean(chosen.dataset.why) && card.dataset.why !== chosen.dataset.why;
  });
})();
