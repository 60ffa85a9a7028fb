// Replaces what has changed, every two seconds. The server escapes what the page shows.
"use strict";

const main = document.querySelector("main");
const state = document.getElementById("state");
// Some networks drop requests silently.
const patience = 5000;
let shown = "";
let answered = new Date();

async function refresh() {
  try {
    const signal = AbortSignal.timeout(patience);
    const answer = await fetch("fragment", { cache: "no-store", signal });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    // Unchanged content stays, so that a selection or a tooltip survives.
    if (text !== shown) {
      const open = [...main.querySelectorAll("details")].map((one) => one.open);
      const left = main.querySelector("figure")?.scrollLeft ?? 0;
      main.innerHTML = text;
      main.querySelectorAll("details").forEach((one, at) => (one.open = open[at] ?? false));
      main.querySelector("figure")?.scrollTo(left, 0);
      shown = text;
    }
    answered = new Date();
    document.body.classList.remove("stale");
    state.textContent = "live";
  } catch (error) {
    if (!document.body.classList.contains("stale")) {
      document.body.classList.add("stale");
      state.textContent = `no answer since ${answered.toLocaleTimeString()}, showing the last state`;
    }
  }
}

async function follow() {
  if (!document.hidden) await refresh();
  setTimeout(follow, 2000);
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
follow();
