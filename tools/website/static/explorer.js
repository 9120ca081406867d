// Brings the explorers of a page to life: native inputs drive figure.js, the very script of the notebooks.
// The pictures of all settings come in one file an explorer, as tools/website/explorers.py has factored them; those of
// an explorer with too many settings are computed by a script of its own, some of them with a model, which is loaded
// once the reader changes something.

import figure from "../explorers/figure.js";

// What figure.js asks of the model of a widget: values, and to be told when some have changed.
export function modelOf(values, models = {}) {
  const listeners = new Set();
  return {
    widget_manager: { get_model: async (name) => models[name] },
    get: (name) => values[name],
    set: (name, value) => (values[name] = value),
    on: (event, listener) => event === "change" && listeners.add(listener),
    off: (event, listener) => listeners.delete(listener),
    save_changes: () => listeners.forEach((listener) => listener()),
  };
}

// The picture of a setting: the structure of all pictures, with the value of each leaf that belongs to it.
function chosen(tree, setting, sizes) {
  if (Array.isArray(tree)) return tree.map((part) => chosen(part, setting, sizes));
  if (!tree.of) return Object.fromEntries(Object.entries(tree).map(([key, part]) => [key, chosen(part, setting, sizes)]));
  return tree.of[tree.at[tree.on.reduce((place, control) => place * sizes[control] + setting[control], 0)]];
}

export async function load(name) {
  const response = await fetch(new URL(`../explorers/${name}.json`, import.meta.url));
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
  const data = await response.json();
  return data.computed ? { ...data, compute: (await import(`../explorers/${name}.js`)).default } : data;
}

export const models = {}; // that were asked for, or trained in this page

export async function modelAt(name) {
  const { load } = await import("../explorers/gpt.js");
  models[name] ??= load(new URL(`../explorers/${name}`, import.meta.url));
  try {
    return await models[name];
  } catch (error) {
    delete models[name]; // the next change asks again
    throw error;
  }
}

// The picture of a setting that was worked out beforehand: the only one, if the page computes the others.
function stored(data, setting) {
  const sizes = data.controls.map(({ labels }) => labels.length);
  const { panels, caption } = chosen({ panels: data.panels, caption: data.caption }, setting, sizes);
  return { panels, caption: Object.values(caption).join("") };
}

const labelOf = ({ labels }, at) => labels[at] ?? String(at); // a slider along a text goes on with it

// What an explorer shows, given the number of the value of each control, the values of those that are dragged, and if it
// has a model, that and a text.
export function pictureOf(data, setting, dragged = {}, model = undefined, text = "") {
  const picture = stored(data, setting);
  if (!data.compute) return picture;
  const values = data.controls.map((control, at) => [control.name, Number(labelOf(control, setting[at]))]);
  return data.compute(picture.panels, { ...dragged, ...Object.fromEntries(values) }, model, text);
}

// The characters of a text that the model knows, behind a newline, as each story that it was trained on; and a sentence
// about the others.
function readable(text, { characters, config }) {
  const unknown = [...new Set(text)].filter((one) => !characters.includes(one)).map((one) => `“${one}”`);
  const known = ["\n", ...text].filter((one) => characters.includes(one));
  const words = `Left out: ${unknown.join(", ")}. The model has only ever read these, and spaces: ${[...characters.trim()].join(" ")}`;
  return [known.slice(-config.block_size).join(""), unknown.length ? words : ""];
}

const TOP = 56; // CSS pixels of the line on top of a page
const settingOf = (input) => (input.type === "checkbox" ? Number(input.checked) : (input.selectedIndex ?? Number(input.value)));

function enliven(explorer, data) {
  const controls = explorer.querySelector(".controls");
  const inputs = data.controls.map((control) => controls.elements[control.name]);
  const { text: area, position: along } = controls.elements;
  const said = explorer.querySelector(".said");
  const dragged = Object.fromEntries(Object.entries(data.dragged).map(([key, values]) => [key, modelOf(values)]));
  const names = Object.keys(dragged);
  const model = modelOf({ controls: Object.fromEntries(names.map((key) => [key, key])) }, dragged);

  const draw = (picture) => {
    Object.entries({ error: "", ...picture }).forEach(([key, value]) => model.set(key, value));
    model.save_changes();
  };

  const name = (input, at) => {
    if (input.type !== "range") return;
    const label = labelOf(data.controls[at], settingOf(input));
    input.setAttribute("aria-valuetext", label);
    input.nextElementSibling.textContent = label;
  };

  // The text as its model reads it; who has typed sees the prediction at the end of it.
  const read = (trained, typing) => {
    const [text, words] = readable(area.value, trained);
    said.textContent = words;
    if (along) along.max = text.length - 1;
    if (along && typing) along.value = along.max;
    return text;
  };

  const scores = () => Object.fromEntries(names.map((key) => [key, dragged[key].get("value")]));

  const show = async ({ target } = {}) => {
    const before = { panels: model.get("panels"), caption: model.get("caption") };
    try {
      if (data.model && !models[data.model]) said.textContent = "Loading the model …";
      const trained = data.model && (await modelAt(data.model));
      const text = trained && read(trained, target === area);
      inputs.forEach(name);
      model.set("settings", Object.values(scores()));
      draw(pictureOf(data, inputs.map(settingOf), scores(), trained, text));
    } catch (error) {
      if (data.model) said.textContent = "";
      draw({ ...before, error: `${error.name}: ${error.message}` });
    }
  };

  model.set("settings", Object.values(scores()));
  draw(stored(data, inputs.map(settingOf)));
  const live = document.createElement("div");
  explorer.querySelector(".figure").replaceChildren(live);
  figure.render({ model, el: live }); // in the page, where it sees how wide it is
  live.querySelectorAll(".attention-panels > div").forEach((panel) => wide.observe(panel));
  controls.addEventListener("input", show);
  names.forEach((key) => dragged[key].on("change", show));
  controls.disabled = false;
  const below = live.getBoundingClientRect().bottom - controls.getBoundingClientRect().top;
  explorer.classList.toggle("tall", below > innerHeight - TOP);
}

// A panel that is wider than the page scrolls; one without cells, in which the keys would lead, takes the focus itself.
const wide = new ResizeObserver((entries) => {
  for (const { target: panel } of entries) {
    const readable = panel.querySelector('canvas[tabindex="0"]');
    if (panel.scrollWidth > panel.clientWidth && !readable) panel.tabIndex = 0;
    else panel.removeAttribute("tabindex");
  }
});

async function start(explorer) {
  try {
    enliven(explorer, await load(explorer.dataset.explorer));
  } catch (error) {
    const message = document.createElement("p");
    message.role = "alert";
    message.textContent = `This explorer could not be loaded: ${error.message}. Reload the page to try again.`;
    explorer.querySelector(".figure").append(message);
  }
}

const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      start(target);
    }
  },
  { rootMargin: "100% 0px" },
);
document.querySelectorAll(".explorer").forEach((explorer) => near.observe(explorer));
