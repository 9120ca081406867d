// What a page does: it asks, and remembers the answers; it searches; it marks where in the text the reader is.

import fill from "./fill.js";
import { FIRST, REVIEW, isDue, keep, move, recall, scheduled } from "./kept.js";
import { save } from "./progress.js";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const root = document.body.dataset.root;

// Where the browser refuses to keep something, this is said once.

const refused = document.querySelector("#refused");
const [saveButton, closeButton] = all("button", refused);
document.addEventListener("refused", () => (refused.hidden = false), { once: true });
saveButton.addEventListener("click", save);
closeButton.addEventListener("click", () => (refused.hidden = true));

// Do what needs a file. Where it does not come this is said in its place, with a button that tries again.

export async function attempt(place, what, load) {
  try {
    await load();
  } catch (error) {
    const note = Object.assign(document.createElement("p"), { className: "absent", role: "alert", textContent: `${what} could not be loaded: ${error.message}. ` });
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Try again" });
    button.addEventListener("click", async () => {
      note.remove();
      await attempt(place, what, load);
      place.querySelector("button")?.focus();
    });
    note.append(button);
    place.replaceChildren(note);
  }
}

async function fetched(path) {
  const answer = await fetch(root + path);
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.json();
}

// Questions. A choice takes the place of the others, with its explanation; what was chosen is kept, by its text.

const KEPT = "attention-question "; // a text that is kept counts only if the page has it, too
// The results of what a question asks about: outputs below it, as far as the next heading or task.
function resultsOf(question) {
  const results = [];
  for (let cell = question.closest(".cell").nextElementSibling; cell; cell = cell.nextElementSibling) {
    if (cell.querySelector("h2, h3, .attention-question, .explorer, .exercise")) break;
    results.push(...all(".output", cell));
  }
  return results;
}

function veil(result, veiled) {
  result.classList.toggle("veiled", veiled);
  for (const part of result.children) part.inert = veiled;
}

function ask(question) {
  const key = KEPT + question.dataset.question;
  const again = "again" in question.dataset; // with other numbers: nothing is kept but how the first answer went
  const choices = all(".attention-choices button", question);
  const explanations = all("template", question);
  const room = question.querySelector(".attention-room"); // what the chosen one takes, above its explanation
  const status = question.querySelector("[role=status]");
  const corner = question.querySelector(".attention-corner");
  const skip = corner.textContent;
  const results = again ? [] : resultsOf(question);
  const right = choices.find((choice) => "right" in choice.dataset);

  const show = (choice, verdict) => {
    const kind = choice === right ? "attention-right" : "attention-wrong";
    choice.classList.add(kind);
    if (!choice.querySelector("i")) choice.insertAdjacentHTML("afterbegin", `<i aria-hidden="true">${choice === right ? "✓" : "✗"}</i>`);
    for (const other of choices) other.classList.toggle("attention-shown", other === choice);
    room.textContent = choice.value;
    status.className = kind;
    status.replaceChildren(explanations[choices.indexOf(choice)].content.cloneNode(true));
    status.firstElementChild.prepend(`${verdict} `);
    question.classList.add("attention-answered");
    for (const result of results) veil(result, false);
    corner.textContent = corner.dataset.back;
    corner.hidden = false;
  };
  const showText = (text) => {
    const choice = choices.find((each) => each.value === text);
    if (choice) show(choice, choice === right ? question.dataset.isRight : question.dataset.isWrong);
    else if (text === skip) show(right, question.dataset.isShown);
  };
  let first = true;
  const answer = (text) => {
    first &&= again || !recall(key).length; // it may have been answered in another tab
    if (first) move(`question ${question.dataset.question}`, text === right.value);
    if (first && !again) keep(FIRST + question.dataset.question, [text === right.value ? "right" : "wrong"]);
    first = false;
    if (!again) keep(key, [...recall(key).filter((each) => each !== text), text]);
    showText(text);
    corner.focus();
  };

  for (const choice of choices) choice.addEventListener("click", () => answer(choice.value));
  corner.addEventListener("click", () => {
    if (!question.classList.contains("attention-answered")) return answer(skip);
    question.classList.remove("attention-answered");
    corner.textContent = skip;
    corner.hidden = right.classList.contains("attention-right");
    choices[0].focus();
  });
  for (const result of results) {
    veil(result, true);
    result.addEventListener("click", () => veil(result, false));
  }
  for (const text of again ? [] : recall(key)) showText(text);
}

all(".attention-question").forEach(ask);

const anyOf = (things) => things[Math.floor(Math.random() * things.length)];

// Fetch what is shown again, one of its variants.
export async function fetchAgain(kind, name) {
  const place = document.createElement("template");
  place.innerHTML = anyOf(await fetched(`again/${kind}s/${name}.json`));
  return place.content.firstElementChild;
}

export async function askAgain(name) {
  const question = await fetchAgain("question", name);
  ask(question);
  return question;
}

// What of the review this edition has: the items, those that are due, and the minutes that each takes.
export async function reviewed() {
  const items = scheduled();
  if (!items.length) return { items, due: [], minutes: {} };
  const minutes = await fetched("again/minutes.json");
  const known = items.filter(([item]) => Object.hasOwn(minutes, item));
  return { items: known, due: known.map(([item]) => item).filter(isDue), minutes };
}

async function warmUp(place) {
  const names = place.dataset.warmUp.split(" ");
  const first = anyOf(names);
  const drawn = [first, anyOf(names.filter((name) => name !== first))];
  place.replaceChildren(...(await Promise.all(drawn.map(askAgain))));
}

// Fills. Each comes when the reader is near it; the levels that are solved are kept.

const FILLED = "attention-fill ";

// Show a fill in its place, with the levels that are solved, or as if none ever was.
export async function showFill(place, again = false) {
  const name = place.dataset.fill;
  const key = FILLED + name;
  const solved = (levels) => {
    keep(key, [...new Set([...recall(key), ...levels])]);
    move(`fill ${name}`, true);
  };
  fill.mount(place, await fetched(`fills/${name}.json`), again ? [] : recall(key), solved, () => move(`fill ${name}`, false));
  all(".attention-value", place).forEach((box) => watch.observe(box));
}

const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      if ("fill" in target.dataset) attempt(target, "This fill", () => showFill(target));
      else attempt(target, "These questions", () => warmUp(target));
    }
  },
  { rootMargin: "1000px" },
);
all(".cell [data-fill], [data-warm-up]").forEach((place) => near.observe(place));

// Where the reader was last: the front page leads back there.

const LAST = "attention-rung";
const [ANSWER, TRY, OTHERS] = ["attention-answer ", "attention-try ", "attention-others"]; // of judge.js
const current = document.querySelector("#ladder [aria-current]");
if (current) keep(LAST, [location.pathname.split("/").at(-2)]);
const last = all(".rungs a").find((link) => recall(LAST).includes(link.getAttribute("href").replace("/", "")));
if (last) Object.assign(document.querySelector(".door"), { href: last.href, textContent: `Go on with rung ${last.dataset.title}` });

// The front page says which rungs are done, by their hardest exercises, and what there is to review.

for (const link of all("[data-hardest]")) link.querySelector(".mark").textContent = recall(TRY + link.dataset.hardest)[1] === "passed" ? "✓ done" : "";
const door = document.querySelector(".doors [href='review/']");
if (door)
  reviewed().then(
    ({ due }) => {
      if (due.length) door.textContent = `Review: ${due.length} due`;
    },
    () => {}, // the page that it leads to says what did not come
  );

document.querySelector("#forget").addEventListener("click", ({ target }) => {
  if (!confirm(target.dataset.asks)) return;
  try {
    for (const key of Object.keys(localStorage)) if ([KEPT, FIRST, FILLED, LAST, REVIEW, ANSWER, TRY, OTHERS].some((start) => key.startsWith(start))) localStorage.removeItem(key);
  } catch {}
  location.reload();
});

// Search, over all rungs. Its index is fetched when somebody first searches.

const dialog = document.querySelector("#search");
const words = document.querySelector("#search-words");
const results = document.querySelector("#search-results");
const status = document.querySelector("#search-status");

document.querySelector("#search-button").addEventListener("click", () => dialog.showModal());
addEventListener("keydown", (event) => {
  if (event.key !== "/" || dialog.open || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  dialog.showModal();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest("a")) dialog.close();
});

function listed({ url, title, excerpt }) {
  const item = document.createElement("li");
  const link = Object.assign(document.createElement("a"), { href: url, textContent: title });
  const text = Object.assign(document.createElement("p"), { innerHTML: excerpt }); // escaped by Pagefind, but for its marks
  item.append(link, text);
  return item;
}

let edition = ""; // of Pagefind, which remembers for good what it could not load: another try takes a new one

async function find() {
  const pagefind = await import(new URL(`${root}pagefind/pagefind.js${edition}`, location));
  const found = await pagefind.debouncedSearch(words.value, {}, 150);
  if (!found) return; // more was typed
  const pages = await Promise.all(found.results.slice(0, 6).map((result) => result.data()));
  const places = pages.flatMap(({ meta, sub_results }) =>
    sub_results.slice(0, 3).map((place) => ({ ...place, title: place.title === meta.title ? meta.title : `${meta.title}: ${place.title}` })),
  );
  results.replaceChildren(...places.map(listed));
  status.textContent = words.value && (places.length ? `${found.results.length} pages` : "Nothing found.");
}

words.addEventListener("input", () =>
  attempt(status, "The search", () =>
    find().catch((error) => {
      edition = `?${Date.now()}`;
      throw error;
    }),
  ),
);

// The list of headings marks the one that is being read.

const links = new Map(all("#ladder ol ol a").map((link) => [link.hash.slice(1), link]));
const headings = all("main h2[id]").filter((heading) => links.has(heading.id));
const mark = () => {
  const read = headings.findLast((heading) => heading.getBoundingClientRect().top < innerHeight / 3);
  for (const [id, link] of links) link.toggleAttribute("data-read", id === read?.id);
};
if (links.size) addEventListener("scroll", () => requestAnimationFrame(mark), { passive: true });
mark();
document.querySelector("#ladder[popover]")?.addEventListener("click", (event) => {
  if (event.target.closest("a") && event.currentTarget.matches(":popover-open")) event.currentTarget.hidePopover();
});

// What is wider than the page scrolls inside itself, also by keyboard.

const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
all("pre, .wide, .output, .attention-panels > div, p:has(> img), .scene, math[display=block]").forEach((box) => watch.observe(box));
