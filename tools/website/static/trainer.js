// A GPT that trains in a worker, while the page draws its loss and now and then asks it a question. When it is there,
// the explorers of the page show it in place of the GPT of the notebook.

import figure from "../explorers/figure.js";
import { modelOf, models } from "./explorer.js";

const FOLDER = new URL("../train/", import.meta.url);
const EVERY = 50; // steps between two answers
const LENGTH = 43; // characters of an answer, at most

const place = document.querySelector(".trainer");
const [button, bar, said, film, frame] = ["button", "progress", ".state", "pre", ".figure"].map((name) => place.querySelector(name));
let worker = null;

function end(words) {
  worker.terminate();
  worker = null;
  button.textContent = "Train it again";
  said.textContent = words;
}

async function start() {
  const mine = (worker = new Worker(new URL("train.js", FOLDER), { type: "module" }));
  const failed = (reason) => worker === mine && end(`The training could not be started: ${reason}. Press the button to try again.`);
  mine.onerror = ({ message }) => failed(message ?? "its files do not load");
  button.textContent = "Stop";
  said.textContent = "Loading …";
  film.textContent = "";
  bar.value = 0;
  try {
    const [{ assembled }, answer] = await Promise.all([import("../explorers/gpt.js"), fetch(new URL("given.json", FOLDER))]);
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    const { text, characters, asked, model, panel, ...given } = await answer.json();
    const ids = Uint8Array.from(text, (one) => characters.indexOf(one));
    const { steps } = given.recipe;
    const losses = [];
    const caption = `The loss of each step on its batch; both axes are logarithmic. Dashed: the floors of the n-grams, and the entropy of the stories. Below, how it goes on from “${asked.trim()}” with the most probable letters.`;
    const shown = modelOf({ controls: {}, settings: [], error: "", caption });
    const begun = performance.now();
    let drawn = false;
    mine.onmessage = ({ data: { done, loss, state } }) => {
      losses.push(loss);
      const curve = { ...panel.curves[0], x: losses.map((_, at) => at + 1), y: losses };
      shown.set("panels", [{ ...panel, curves: [curve] }]);
      if (drawn) shown.save_changes();
      else figure.render({ model: shown, el: frame.appendChild(document.createElement("div")) });
      drawn = true;
      if (state) {
        const gpt = assembled(given.config, characters, state);
        const written = gpt.generate(gpt.encode(asked), LENGTH, 0, characters.length).slice(asked.length);
        film.hidden = false;
        film.textContent += `step ${String(done).padStart(3)}  Poor ${written.map((id) => characters[id]).join("").split("\n")[0]}\n`;
        models[model] = gpt; // for the explorers of this page, as soon as one is changed
      }
      bar.value = done;
      const seconds = (performance.now() - begun) / 1000;
      const left = Math.round((seconds * (steps - done)) / done);
      if (done === steps) end(`${done} steps in ${seconds.toFixed(0)} s, loss ${loss.toFixed(2)}. The explorers below now show this GPT, as soon as you change something.`);
      else if (state) said.textContent = `step ${done} of ${steps}, loss ${loss.toFixed(2)}, ${left} s left`;
      else if (done === 1) said.textContent = "";
    };
    frame.replaceChildren();
    mine.postMessage({ ...given, ids, every: EVERY });
  } catch (error) {
    failed(error.message);
  }
}

button.addEventListener("click", () => (worker ? end("Stopped.") : start()));
button.disabled = false;
