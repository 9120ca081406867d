// Exercises: an editor in place of the code, and a check by the course's own judge, which runs in a worker.
// Nothing of it is loaded before the first check, and later only from the browser's own cache.

import { isDue, keep, move, recall } from "./kept.js";
import { ofTries, save, taken, tried } from "./progress.js";

const { root, judge, judgeSize } = document.body.dataset;
const ANSWER = "attention-answer ";
const CALL = 10; // seconds for one call of an answer
const WORK = 90; // seconds for what the judge does between two calls
const TOTAL = 600; // seconds for all of a check, whatever the worker tells
const STILL = 90; // seconds in which nothing comes of the judge itself
const TAGS = ["code", "div", "em", "li", "p", "span", "strong", "table", "tbody", "td", "th", "tr", "ul"]; // of a verdict
const ATTRIBUTES = ["role", "scope", "style"];

const element = (tag, given = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), given);
  made.append(...inside);
  return made;
};

// What the worker says may come from an answer, which is not trusted: its HTML can be read, and do nothing.
function harmless(html) {
  const { body } = new DOMParser().parseFromString(html, "text/html");
  for (const each of body.querySelectorAll("*")) {
    if (!TAGS.includes(each.localName)) each.replaceWith(each.textContent);
    for (const name of each.getAttributeNames()) if (!ATTRIBUTES.includes(name)) each.removeAttribute(name);
  }
  return body.childNodes;
}

// What was tried is kept as the notebooks do

function note(name, { passed, mistakes: named = [] }) {
  const mistakes = named.filter((mistake) => /^\w{1,80}$/.test(mistake)).slice(0, 50);
  const before = tried(name);
  if (!before.passed || isDue(`exercise ${name}`)) move(`exercise ${name}`, passed);
  if (!before.passed) keep(...ofTries(name, { tries: before.tries + 1, passed, mistakes: [...before.mistakes, ...mistakes] }));
}

// The worker, one for the page. It is ended where an answer does not end, and a new one takes its place.

let worker = null;
let ready = false;
let asked = null; // what is being judged: its listeners

function start() {
  ready = false;
  const script = new Blob([`import ${JSON.stringify(new URL(`${root}${judge}worker.js`, location))}`], { type: "text/javascript" });
  try {
    worker = new Worker(URL.createObjectURL(script), { type: "module" }); // a blob has the policy of the page: no eval, no other host
  } catch (error) {
    return hear({ kind: "failed", value: String(error) });
  }
  worker.onerror = () => hear({ kind: "failed", value: "the worker does not start" });
  worker.onmessage = ({ data }) => hear(data);
}

function stop() {
  if (worker) worker.onmessage = null; // a late verdict is none of the next check
  worker?.terminate();
  worker = null;
}

function hear({ kind, value }) {
  if (kind === "ready") {
    ready = true;
    stay();
  } else if (["full", "ended", "failed"].includes(kind) || value?.spent) stop();
  if (kind === "failed") forget().finally(() => asked?.(kind, value));
  else asked?.(kind, value);
}

// What the service worker keeps may be what is damaged: a failure is told when that is gone, and not tried again before.
async function forget() {
  for (const name of (await globalThis.caches?.keys()) ?? []) {
    const cache = await caches.open(name);
    for (const { url } of await cache.keys()) if (url.startsWith(new URL(root + judge, location))) await cache.delete(url);
  }
}

// Have the service worker keep what this page has loaded, for the next visit and for one without a network.
function stay() {
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
  const own = [location.href.split("#")[0], ...loaded].filter((address) => address.startsWith(location.origin));
  navigator.serviceWorker
    ?.register(`${root}sw.js`)
    .then(() => navigator.serviceWorker.ready)
    .then(({ active }) => active.postMessage(own))
    .catch(() => {}); // where there is none, the browser's own cache has to do
}

const ENDED = "Your code ended the Python that it ran in. Remove the call that does so: an answer returns its result, and its caller continues. Or it went too deep: does your function call itself without an end? Or it took more memory than the page has: does something in it grow without an end?";
const late = (seconds, given) => `Your code was still running after ${seconds} seconds${given ? `, for ${given.replaceAll("`", "")}` : ""}. It was ended. Which loop does not end, and what should end it?`;

// While the reader types, the worker prepares what the checks to come compare with. A reader who has checked something
// before has all that it loads in the browser's cache: for them it starts when they begin to write.
async function prepare(...ahead) {
  if (!worker && !(await globalThis.caches?.match(`${root}${judge}worker.js`))) return;
  if (!worker) start();
  worker?.postMessage({ ahead });
}

// Judge a cell. `shown` is told what comes: ("come", bytes), ("starting"), ("printed", text).
function check(question, shown) {
  return new Promise((resolve) => {
    let timer;
    let given = "";
    let end; // once Python is there: it may take long to come
    const finish = (result) => {
      clearTimeout(timer);
      asked = null;
      resolve(result);
    };
    const expect = () => {
      clearTimeout(timer);
      timer = setTimeout(() => hear({ kind: "failed", value: `nothing came for ${STILL} seconds` }), STILL * 1000);
    };
    const wait = (seconds) => {
      clearTimeout(timer);
      end ??= performance.now() + TOTAL * 1000;
      timer = setTimeout(() => {
        stop();
        finish({ headline: "it does not end", message: late(seconds, given) });
      }, Math.min(seconds * 1000, end - performance.now()));
    };
    asked = (kind, value) => {
      if (kind === "verdict") finish(value);
      else if (kind === "ended") finish({ headline: "it ends Python", message: ENDED });
      else if (kind === "failed") finish({ broken: true, message: `The judge could not be loaded: ${String(value).replace(/\.$/, "")}. Press Check to try again. If that does not help, load this page again.` });
      else if (kind === "call") {
        given = value;
        wait(CALL);
      } else if (kind === "called" || kind === "ready") {
        wait(kind === "called" ? WORK : CALL);
      } else {
        if (!ready) expect();
        shown(kind, value);
      }
    };
    if (!worker) start();
    if (ready) wait(CALL);
    else expect();
    worker?.postMessage(question);
  });
}

// The editor: a text area in which Tab and Enter indent, until Escape gives Tab back to the page.

function insert(editor, text) {
  if (!document.execCommand("insertText", false, text)) editor.setRangeText(text, editor.selectionStart, editor.selectionEnd, "end");
}

function press(event, submit) {
  const editor = event.target;
  const { selectionStart: from, selectionEnd: to, value } = editor;
  const begin = value.lastIndexOf("\n", from - 1) + 1;
  const before = value.slice(begin, from);
  if (event.key === "Escape") editor.dataset.leaves = "";
  else if (event.key !== "Tab" && event.key !== "Shift") delete editor.dataset.leaves;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    submit();
  } else if (event.key === "Enter") {
    event.preventDefault();
    insert(editor, `\n${before.match(/^ */)[0]}${/:\s*(#.*)?$/.test(before) ? "    " : ""}`);
  } else if (event.key === "Tab" && !("leaves" in editor.dataset)) {
    event.preventDefault();
    const end = value.indexOf("\n", to) < 0 ? value.length : value.indexOf("\n", to);
    const lines = value.slice(begin, end);
    if (!event.shiftKey && from === to) return insert(editor, " ".repeat(4 - (before.length % 4)));
    const moved = event.shiftKey ? lines.replace(/^ {1,4}/gm, "") : lines.replace(/^(?=.)/gm, "    ");
    editor.setSelectionRange(begin, end);
    insert(editor, moved);
    if (from === to) editor.setSelectionRange(Math.max(begin, from + moved.length - lines.length), Math.max(begin, from + moved.length - lines.length));
    else editor.setSelectionRange(begin, begin + moved.length);
  } else if (event.key === "Backspace" && from === to && /^ +$/.test(before)) {
    event.preventDefault();
    editor.setSelectionRange(from - (((before.length - 1) % 4) + 1), from);
    insert(editor, "");
    if (editor.value.length === value.length) document.execCommand("delete");
  }
}

// The difference of two texts, line by line, by their longest common subsequence.
function difference(old, now) {
  const [a, b] = [old, now].map((text) => text.trimEnd().split("\n"));
  const longest = Array.from({ length: a.length + 1 }, () => Array.from({ length: b.length + 1 }, () => 0));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const found = [];
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    if (i < a.length && j < b.length && a[i] === b[j]) found.push(["  ", a[i++], j++]); // of both
    else if (j < b.length && (i === a.length || longest[i][j + 1] > longest[i + 1][j])) found.push(["+ ", b[j++]]);
    else found.push(["- ", a[i++]]);
  }
  return found;
}

function compared(source, reference) {
  const mine = source.split("\n").filter((line) => !/^\s*(check\(|#)/.test(line)).join("\n").trim();
  const lines = difference(mine, reference).map(([sign, line]) => element("span", { className: { "- ": "yours", "+ ": "ours" }[sign] ?? "", textContent: `${sign}${line}\n` }));
  return element("details", {}, element("summary", { textContent: "Your answer (−) and ours (+)" }), element("pre", { className: "code difference" }, ...lines));
}

// An exercise. What is written is kept at once, so what is kept and not shown comes from another tab, or from a page that
// was left and comes back: it is shown before anybody writes on.

for (const event of ["storage", "pageshow"]) addEventListener(event, () => document.dispatchEvent(new Event("kept")));

const every = []; // of this page, in order: the name, and the seed of its inputs
const drawn = () => Math.floor(Math.random() * 2 ** 31);

export function enliven(exercise) {
  const again = exercise.closest("[data-again]"); // it begins empty, and what was written in the rung stays
  const { exercise: name, given, function: called } = exercise.dataset;
  const code = exercise.closest(".cell").querySelector("pre.code");
  const stub = code.textContent.trimEnd();
  const editor = element("textarea", { className: "editor", spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off" });
  editor.setAttribute("aria-label", `Your answer to ${name}. Tab indents; Escape, then Tab, leaves the field.`);
  const button = element("button", { type: "button", textContent: "Check", className: "check" });
  const reset = element("button", { type: "button", textContent: "Reset" });
  const mark = element("span", { className: "mark" });
  const bar = element("progress", { max: Number(judgeSize), value: 0 });
  bar.setAttribute("aria-label", "Python comes");
  const words = element("span");
  const loading = element("p", { className: "loading", hidden: true }, bar, " ", words);
  const printed = element("pre", { className: "text", hidden: true });
  const result = element("div", { className: "verdict" });
  result.setAttribute("role", "status");
  const own = [name, drawn()]; // the same inputs until it passes: what they are compared with is there already
  const next = () => every[every.indexOf(own) + 1] ?? own;
  every.push(own);

  const fit = () => (editor.rows = Math.max(4, editor.value.split("\n").length + 1));
  const write = (text) => {
    if (text === editor.value) return;
    editor.value = text;
    fit();
  };
  const tell = () => {
    if (again) return;
    mark.textContent = tried(name).passed ? "✓ solved" : "";
    write(recall(ANSWER + name)[0] ?? stub);
  };
  const shown = (kind, value) => {
    if (kind === "come") {
      bar.value = value;
      words.textContent = `Python comes to this page, once: ${(value / 1e6).toFixed(1)} of ${(bar.max / 1e6).toFixed(1)} MB`;
    } else if (kind === "starting") words.textContent = "Python starts";
    else if (kind === "printed") {
      printed.hidden = false;
      printed.append(value);
    }
  };
  const judged = async () => {
    const others = document.querySelectorAll("button.check");
    if (button.disabled) return;
    others.forEach((other) => (other.disabled = true));
    printed.hidden = true;
    printed.replaceChildren();
    loading.hidden = ready && worker !== null;
    const still = setTimeout(() => result.replaceChildren(element("p", { textContent: ready ? "Checking" : "" })), 300);
    const source = editor.value;
    const verdict = await check({ exercise: name, source, given, name: called, seed: own[1] }, shown);
    clearTimeout(still);
    loading.hidden = true;
    others.forEach((other) => (other.disabled = false));
    if (verdict.html) result.replaceChildren(...harmless(verdict.html));
    else result.replaceChildren(element("p", {}, element("strong", { textContent: verdict.broken ? "" : `✗ not yet: ${verdict.headline}. ` }), verdict.message));
    if (verdict.tried || verdict.headline) note(name, { passed: Boolean(verdict.passed), mistakes: verdict.mistakes });
    if (verdict.passed) {
      own[1] = drawn();
      result.append(compared(source, exercise.querySelector(".solution pre").textContent));
    }
    if (verdict.passed) prepare(next(), own);
    else prepare(own, next());
    document.dispatchEvent(new Event("kept"));
  };

  editor.addEventListener("focus", () => prepare(own, next()));
  editor.addEventListener("keydown", (event) => press(event, judged));
  editor.addEventListener("input", () => {
    if (!again) keep(ANSWER + name, [editor.value]);
    fit();
  });
  document.addEventListener("kept", tell);
  button.addEventListener("click", judged);
  reset.addEventListener("click", () => {
    if (editor.value !== stub) {
      if (!confirm("Reset this answer to the empty exercise? What you wrote is removed.")) return;
      editor.focus();
      editor.select();
      insert(editor, stub); // as if typed: the browser can undo it
      fit();
      reset.focus();
    }
    if (!again) keep(ANSWER + name, []);
    result.replaceChildren();
    printed.hidden = true;
  });
  write(stub);
  tell();
  code.replaceWith(editor);
  exercise.querySelector(".solve").replaceChildren(button, reset, mark);
  exercise.querySelector(".solve").after(loading, printed, result);
}

document.querySelectorAll(".exercise[data-given]:not([data-again] *)").forEach(enliven);

// The page of all exercises: what is solved, and a file that notebooks read and write as well.

const practice = document.querySelector("#solved");
const names = [...document.querySelectorAll("[data-task]")].map((task) => task.dataset.task);

function count() {
  for (const task of document.querySelectorAll("[data-task]")) task.querySelector("summary .mark").textContent = tried(task.dataset.task).passed ? "✓ solved" : "";
  practice.textContent = `${names.filter((name) => tried(name).passed).length} of ${names.length} solved.`;
}

if (practice) {
  count();
  document.addEventListener("kept", count);
  document.querySelector("#export").addEventListener("click", save);
  document.querySelector("#import").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (!file) return;
    document.querySelector("#taken").textContent = await taken(file);
    target.value = ""; // the same file may be chosen again
    document.dispatchEvent(new Event("kept"));
  });
}
