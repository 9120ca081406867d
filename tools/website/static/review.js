// The page that brings back what was missed: what is due, the oldest first, about five minutes of it.

import { askAgain, attempt, fetchAgain, reviewed, showFill } from "./page.js";
import { counted } from "./progress.js";

const TIME = 5;
const place = document.querySelector("#things");
const status = document.querySelector("#due");
const more = document.querySelector("#more");

// The first, and all that still fit.
function portion(due, minutes) {
  const chosen = [];
  let taken = 0;
  for (const item of due) {
    if (chosen.length && taken + minutes[item] > TIME) continue;
    chosen.push(item);
    taken += minutes[item];
  }
  return [chosen, taken];
}

async function shown(kind, name) {
  if (kind === "question") return askAgain(name);
  const made = await fetchAgain(kind, name);
  if (kind === "fill") await showFill(made.querySelector("[data-fill]"), true);
  const exercise = made.querySelector(".exercise[data-given]");
  if (exercise) (await import("./judge.js")).enliven(exercise);
  return made;
}

// Show an item in a place of its own, or say there that it did not come.
async function add(item) {
  const [kind, name] = item.split(" ");
  const own = place.appendChild(document.createElement("div"));
  await attempt(own, `This ${kind}`, async () => own.replaceChildren(await shown(kind, name)));
}

async function begin() {
  const { items, due, minutes } = await reviewed();
  const [chosen, taken] = portion(due, minutes);
  place.replaceChildren();
  await Promise.all(chosen.map(add));
  const left = due.length - chosen.length;
  more.hidden = !left;
  more.textContent = `Go on with ${left} more`;
  if (chosen.length) status.textContent = `${counted(chosen.length, "thing")} to review, about ${counted(Math.max(1, Math.round(taken)), "minute")}.`;
  else if (items.length) {
    const [year, month, day] = items[0][1].due.split("-").map(Number);
    const date = new Date(year, month - 1, day).toLocaleDateString("en-GB", { day: "numeric", month: "long" });
    status.textContent = `Nothing to review today. The next thing comes back on ${date}.`;
  } else status.textContent = "Nothing to review. What you miss in a rung comes back here after 1, 7 and 30 days.";
}

const open = () => attempt(place, "Your review", begin);
more.addEventListener("click", () => {
  scrollTo(0, 0);
  open();
});
open();
