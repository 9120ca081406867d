// The stage of a hero: a line of words, buttons, and below them a drawing.
// A hero (bag_of_words.js, ...) is one function, play(stage, data). It says what the picture is at a moment,
// stage.show(state), and how a state is painted, stage.paint; the way from one state to the next is drawn here.
// It asks the stage for its sizes: stage.fit(wide, narrow) returns one of two, for a page or for a phone.

const WIDTH = 640; // CSS pixels; never scaled, so that letters keep their size
const NARROW = 328; // where there is no room for these: as wide as the smallest phone shows, and enlarged to fill others
const TALL = 540; // CSS pixels of a narrow drawing: with words and buttons it fits the screen of a phone
const MOVE = 200; // ms from one state to the next

function create(parent, namespace, tag, attributes, text) {
  const node = namespace ? document.createElementNS(namespace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
}

const html = (parent, tag, attributes = {}, text) => create(parent, null, tag, attributes, text);
const svg = (parent, tag, attributes = {}, text) => create(parent, "http://www.w3.org/2000/svg", tag, attributes, text);

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

// A number as the course prints it: integers as they are, others with two decimals, a true minus.
function number(value, digits = 2) {
  return (Number.isInteger(value) ? String(value) : value.toFixed(digits)).replace("-", "−");
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (a, b) => a.reduce((total, value, i) => total + value * b[i], 0);

// As torch.softmax, and as attention_course.attention does with a row that is hidden whole: zeros.
function softmax(scores) {
  const top = Math.max(...scores);
  if (top === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp(score - top));
  return powers.map((power) => power / sum(powers));
}

// What lies between two states, `share` of the way: numbers, and arrays and objects of them. What is no number jumps.
function between(from, to, share) {
  if (typeof to === "number" && typeof from === "number") return share === 1 ? to : from + (to - from) * share;
  if (Array.isArray(to)) return to.map((value, i) => between(from?.[i], value, share));
  if (to !== null && typeof to === "object") {
    return Object.fromEntries(Object.entries(to).map(([name, value]) => [name, between(from?.[name], value, share)]));
  }
  return to;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const OWN = [...Object.keys(ARROWS), "Enter", " ", "Escape"];

class Stage {
  constructor(figure, height, label, narrow = false) {
    figure.querySelector("img")?.remove(); // the still, for pages without scripts
    this.figure = figure;
    this.narrow = narrow;
    this.width = this.fit(WIDTH, NARROW);
    figure.classList.toggle("narrow", narrow);
    this.guess = html(figure, "div", { class: "guess" });
    this.words = html(figure, "p", { class: "words", role: "status" });
    this.controls = html(figure, "div", { class: "controls" });
    const scene = html(figure, "div", { class: "scene" });
    this.svg = svg(scene, "svg", { width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, role: "group", "aria-label": label });
    if (narrow) this.svg.style.maxWidth = `${NARROW * Math.min(1.25, Math.max(1, TALL / height))}px`;
    // A finger on a handle drags it; elsewhere it scrolls the page. (Chromium heeds neither touch-action nor a listener
    // on a part of a drawing.)
    const keep = (event) => event.target.closest(".movable") && event.preventDefault();
    this.svg.addEventListener("touchstart", keep, { passive: false });
    this.paint = () => {};
    this.motion = matchMedia("(prefers-reduced-motion: no-preference)");
    // Keys that a hero uses, and all that is typed, are kept from the notebook around it; Shift+Enter still runs a cell.
    window.addEventListener("keydown", (event) => {
      const { target, key, shiftKey, ctrlKey, metaKey } = event;
      if (!figure.contains(target)) return;
      const used = OWN.includes(key) && !shiftKey && !ctrlKey && !metaKey;
      target.toggleAttribute("data-lm-suppress-shortcuts", used || target.matches("input"));
    }, true);
  }

  // What is given for the layout that is shown.
  fit(wide, narrow) {
    return this.narrow ? narrow : wide;
  }

  // Where a pointer is in the drawing.
  place({ clientX, clientY }) {
    const { left, top, width } = this.svg.getBoundingClientRect();
    return [clientX - left, clientY - top].map((length) => (length * this.width) / width);
  }

  // Move to a state; resolves when it is there, or when a new call takes over, from wherever the picture is.
  show(state, ms = MOVE) {
    const from = this.shown ?? state;
    this.before = this.state ?? state;
    this.state = state;
    cancelAnimationFrame(this.frame);
    const began = performance.now();
    this.arrived?.();
    return new Promise((arrived) => {
      this.arrived = arrived;
      const draw = (now) => {
        const passed = ms && this.motion.matches ? Math.min(1, Math.max(0, now - began) / ms) : 1;
        this.shown = between(from, state, passed === 1 ? 1 : passed * passed * (3 - 2 * passed));
        this.paint(this.shown, this.before);
        if (passed < 1) this.frame = requestAnimationFrame(draw);
        else arrived();
      };
      draw(began);
    });
  }

  say(words) {
    if (this.words.textContent === words) return;
    this.words.textContent = words;
    // The room that the longest took stays, so that the picture below does.
    if (this.words.offsetHeight) this.words.style.minHeight = `${this.words.offsetHeight}px`;
  }

  // What the picture says in numbers; the tests compare it with what the package computes.
  publish(values) {
    this.figure.dataset.values = JSON.stringify(values);
  }

  button(label, press, attributes = {}) {
    const button = html(this.controls, "button", { type: "button", ...attributes }, label);
    button.addEventListener("click", () => press(button));
    return button;
  }

  // A button that is on or off.
  toggle(label, on, change) {
    const button = this.button(label, () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", pressed);
      change(pressed);
    }, { "aria-pressed": on });
    return button;
  }

  // Buttons of which at most one is on, or on a phone a list: choose(at) is told which, -1 for none. Returns how to set it.
  choices(label, names, choose) {
    if (this.narrow) {
      const select = html(html(this.controls, "label", {}, `${label}: `), "select");
      for (const name of ["none", ...names]) html(select, "option", {}, name);
      select.addEventListener("change", () => choose(select.selectedIndex - 1));
      return (at) => (select.selectedIndex = at + 1);
    }
    const pressed = (button) => button.getAttribute("aria-pressed") === "true";
    const buttons = names.map((name, at) => this.button(name, (button) => choose(pressed(button) ? -1 : at), { "aria-pressed": false }));
    return (chosen) => buttons.forEach((button, at) => button.setAttribute("aria-pressed", at === chosen));
  }

  // Buttons that walk through the steps 0 to last: go(step) shows one, and may return a promise.
  player(last, go, pause = 500) {
    let at = 0;
    let playing = 0; // the number of the walk that goes on by itself; 0 for none
    let walks = 0;
    const stop = () => {
      playing = 0;
      play.textContent = "▶ Play";
    };
    const to = async (step) => {
      at = step;
      back.disabled = at === 0;
      next.disabled = at === last;
      await go(at);
    };
    const back = this.button("Start over", () => (stop(), to(0)));
    const next = this.button("Step", () => (stop(), to(Math.min(last, at + 1))));
    this.play = async () => {
      if (playing) return stop();
      const walk = (playing = ++walks);
      play.textContent = "❚❚ Pause";
      if (at === last) await to(0);
      while (playing === walk && at < last && this.svg.isConnected) {
        await to(at + 1);
        await new Promise((later) => setTimeout(later, this.motion.matches ? pause : 0));
      }
      if (playing === walk) stop();
    };
    const play = this.button("▶ Play", this.play, { class: "play" });
    back.disabled = true;
    return { to, stop };
  }

  // Ask for a guess. With it the buttons appear and the picture plays; when it has, the answer is told.
  ask({ question, choices, right, then }) {
    html(this.guess, "p", {}, question);
    const buttons = choices.map((choice, at) => {
      const button = html(this.guess, "button", { type: "button" }, choice);
      button.addEventListener("click", async () => {
        for (const each of buttons) each.disabled = true;
        button.setAttribute("aria-pressed", true);
        this.words.hidden = this.controls.hidden = false;
        const named = choices[right].replaceAll("“", "‘").replaceAll("”", "’"); // quotes within quotes
        const told = `${at === right ? "Yes." : `Here the answer is “${named}”.`} ${then}`;
        answer.textContent = told; // for a moment, to see what room it needs: the picture moves now, and not at its end
        answer.style.minHeight = `${answer.offsetHeight}px`;
        answer.textContent = "";
        await this.play?.();
        answer.textContent = told;
      });
      return button;
    });
    const answer = html(this.guess, "p", { role: "status" });
    this.words.hidden = this.controls.hidden = true;
  }

  // Let `node` be dragged by mouse, finger or arrow keys. `at()` gives its place in the drawing, `move(x, y)` is
  // told where it should go, `tell()` says in words where it is, `step` is what an arrow key moves it by: pixels, or a
  // function that returns them.
  drag(node, label, { at, move, tell, step = 10 }) {
    node.classList.add("movable");
    set(node, { tabindex: 0, role: "slider", "aria-label": label });
    const describe = () => set(node, { "aria-valuetext": tell(), "aria-valuenow": Math.round(at()[0]) });
    const go = (x, y) => {
      move(x, y);
      describe();
    };
    let hold; // from the pointer to the place of the node
    node.addEventListener("focus", describe);
    node.addEventListener("pointerdown", (event) => {
      const [x, y] = this.place(event);
      hold = [at()[0] - x, at()[1] - y];
      node.setPointerCapture(event.pointerId);
    });
    node.addEventListener("pointermove", (event) => {
      if (!hold) return;
      const [x, y] = this.place(event);
      go(x + hold[0], y + hold[1]);
    });
    for (const end of ["pointerup", "pointercancel"]) node.addEventListener(end, () => (hold = undefined));
    node.addEventListener("keydown", (event) => {
      if (!ARROWS[event.key]) return;
      event.preventDefault();
      const [x, y] = at();
      const [dx, dy] = ARROWS[event.key];
      const by = typeof step === "function" ? step() : step;
      go(x + by * dx, y + by * dy);
    });
    describe();
  }

  // Let go of what is pinned.
  release() {
    this.pinned?.pin(undefined);
  }

  // Call look(key) while `node` is pointed at or has the focus, and look(null) after. A click or Enter pins it,
  // the same again or Escape lets go. A finger glides from one to the next.
  point(node, key, label, look) {
    node.classList.add("pointable");
    set(node, { tabindex: 0, role: "button", "aria-label": label, "aria-pressed": false });
    const pin = (target) => {
      this.pinned?.node.setAttribute("aria-pressed", false);
      this.pinned = target;
      target?.node.setAttribute("aria-pressed", true);
      look(target ? target.key : null);
    };
    const leave = () => look(this.pinned ? this.pinned.key : null);
    node.addEventListener("pointerdown", ({ target, pointerId }) => target.hasPointerCapture(pointerId) && target.releasePointerCapture(pointerId));
    node.addEventListener("pointerenter", () => look(key));
    node.addEventListener("pointerleave", leave);
    node.addEventListener("focus", () => look(key));
    node.addEventListener("blur", leave);
    node.addEventListener("click", () => pin(this.pinned?.node === node ? undefined : { node, key, pin }));
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pin(this.pinned?.node === node ? undefined : { node, key, pin });
      } else if (event.key === "Escape") pin(undefined);
    });
  }
}

// Play on a stage with the layout that there is room for; from the start again where the other one fits, as when a phone is
// turned. A figure has no width before it is in a page.
function open(figure, heights, label, perform) {
  let stage;
  const lay = () => {
    const room = figure.clientWidth;
    const narrow = room > 0 && room < WIDTH;
    if (stage && (!room || stage.narrow === narrow)) return;
    for (const part of figure.querySelectorAll(".guess, .words, .controls, .scene")) part.remove();
    stage = new Stage(figure, heights[Number(narrow)], label, narrow);
    perform(stage);
  };
  lay();
  new ResizeObserver(lay).observe(figure);
}
