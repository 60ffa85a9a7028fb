// Puts in what has changed, every two seconds. What it gets has been made safe where it was made.
"use strict";

const main = document.querySelector("main");
const state = document.getElementById("state");
// Some networks lose what is under way without a word.
const patience = 5000;
let shown = "";
let answered = new Date();

async function refresh() {
  try {
    const signal = AbortSignal.timeout(patience);
    const answer = await fetch("fragment", { cache: "no-store", signal });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    // What has not changed stays, so that it can be read, selected and pointed at.
    if (text !== shown) {
      main.innerHTML = text;
      shown = text;
    }
    answered = new Date();
    document.body.classList.remove("stale");
    state.textContent = "live";
  } catch (error) {
    if (!document.body.classList.contains("stale")) {
      document.body.classList.add("stale");
      state.textContent = `not answering since ${answered.toLocaleTimeString()}; this is how it was`;
    }
  }
}

async function follow() {
  if (!document.hidden) await refresh();
  setTimeout(follow, 2000);
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
follow();
