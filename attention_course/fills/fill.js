// A fill: code with gaps, or as lines in disorder. What the judge of `check` says of every combination of choices is in
// the data, so a verdict needs no kernel. `render` shows a fill in a notebook, and `mount` in a page.

const LEVELS = { blocks: "Blocks", gaps: "Gaps", empty: "Empty" };
const NOT_YET = "not yet"; // lines that are right, and not where they belong: no mistake that counts
const PIECE = "application/x-attention-line";

function element(parent, tag, attributes = {}, ...children) {
  const { role, label, ...others } = attributes;
  const made = Object.assign(document.createElement(tag), others);
  if (role) made.setAttribute("role", role);
  if (label) made.setAttribute("aria-label", label);
  made.append(...children);
  parent?.append(made);
  return made;
}

// A text in which code stands between backticks.
function marked(text) {
  return text.split("`").map((part, i) => (i % 2 ? element(null, "code", { textContent: part }) : part));
}

// The verdict and the result for a choice at each place, by their numbers; where none is made, the right one counts.
function looked(puzzle, chosen) {
  const index = puzzle.choices.reduce((sum, choices, i) => sum * choices.length + (chosen[i] ?? puzzle.right[i]), 0);
  const [verdict, result] = puzzle.table[index];
  const [mistakes, headline, message] = puzzle.verdicts[verdict];
  return { passed: mistakes === null, headline, message, result: puzzle.results[result] };
}

// What a value looks like: a table, in which what differs from the target is framed, or a few words.
function shownValue(name, value, target) {
  const box = element(null, "div", { className: "attention-value" });
  const heading = element(box, "p", {}, element(null, "b", { textContent: name }));
  if (!value.rows) {
    heading.append(value.error ? ` raises ${value.error}` : ` ${value.text}`);
    return box;
  }
  const body = element(element(box, "table"), "tbody");
  const comparable = target?.rows && String(target.shape) === String(value.shape);
  for (const [i, row] of value.rows.entries()) {
    const line = element(body, "tr");
    for (const [j, number] of row.entries()) {
      const differs = target && !(comparable && target.rows[i][j] === number);
      element(line, "td", { textContent: number, className: differs ? "attention-differs" : "" });
    }
  }
  const all = value.shape.reduce((product, size) => product * size, 1) === value.rows.flat().length;
  if (!all) heading.append(`, the first of ${value.shape.slice(0, -2).join(" × ")}`);
  return box;
}

// One place for several things of which one shows: it is as large as the largest, so that nothing moves.
function stack(parent, ...things) {
  const box = element(parent, "div", { className: "attention-stack" }, ...things);
  box.show = (shown) => {
    for (const thing of things) {
      thing.inert = thing !== shown;
      thing.style.visibility = thing === shown ? "visible" : "hidden";
    }
  };
  return box;
}

class Fill {
  constructor(root, fill, done, keep, miss) {
    Object.assign(this, { root, fill, keep, miss, done: new Set(done) });
    root.classList.add("attention-fill");
    const head = element(root, "div", { className: "attention-fill-head" });
    element(head, "b", { textContent: "Fill in" });
    element(head, "code", { textContent: fill.name });
    const tabs = element(head, "div", { className: "attention-levels", role: "group", label: "Level" });
    const levels = Object.keys(LEVELS).filter((level) => fill[level]);
    this.buttons = Object.fromEntries(
      levels.map((level) => [level, element(tabs, "button", { type: "button", onclick: () => this.open(level) })]),
    );
    this.main = element(root, "div", { className: "attention-fill-main" });
    this.open("gaps");
  }

  open(level) {
    this.level = level;
    for (const [each, button] of Object.entries(this.buttons)) {
      button.setAttribute("aria-pressed", each === level);
      button.textContent = `${this.done.has(each) ? "✓ " : ""}${LEVELS[each]}`;
    }
    this.main.replaceChildren();
    this[level]();
  }

  // The verdict, with room for the longest one, and the result beside the target.
  foot(puzzle) {
    const texts = [`Right. ${this.fill.insight}`, ...puzzle.verdicts.map(([, headline, message]) => `${headline}: ${message}`)];
    const longest = texts.reduce((a, b) => (b.length > a.length ? b : a));
    const room = element(null, "div", { className: "attention-verdict" }, element(null, "p", {}, "✗ ", ...marked(longest)));
    this.status = element(null, "div", { className: "attention-verdict", role: "status" });
    room.style.visibility = "hidden";
    room.ariaHidden = "true";
    element(this.main, "div", { className: "attention-stack" }, room, this.status);
    const values = element(this.main, "div", { className: "attention-values" });
    for (const [name, value] of Object.entries(this.fill.given)) values.append(shownValue(name, value));
    values.append(shownValue("target" in this.fill.given ? "wanted" : "target", this.fill.target));
    // Room for the largest results, so that the next one moves nothing.
    const size = ({ rows = [] }) => [rows.length, rows[0]?.length ?? 0];
    const rooms = [0, 1].map((side) => puzzle.results.reduce((a, b) => (size(b)[side] > size(a)[side] ? b : a), this.fill.target));
    this.rooms = rooms.map((value) => {
      const room = shownValue("yours so far", value);
      room.style.visibility = "hidden";
      room.ariaHidden = "true";
      return room;
    });
    this.yours = element(values, "div", { className: "attention-stack" }, ...this.rooms);
  }

  say({ passed, headline, message, result }, left, things) {
    const whole = passed && !left;
    const sign = passed ? "✓" : "✗";
    const text = !passed ? message : left ? `Right so far. ${left} ${left === 1 ? things.slice(0, -1) : things} to go.` : `Right. ${this.fill.insight}`;
    const named = passed ? [] : [element(null, "b", { textContent: headline }), " "];
    this.status.className = `attention-verdict ${passed ? "attention-right" : "attention-wrong"}`;
    this.status.replaceChildren(element(null, "p", {}, `${sign} `, ...named, ...marked(text)));
    this.yours.replaceChildren(...this.rooms, ...(result ? [shownValue(left ? "yours so far" : "yours", result, this.fill.target)] : []));
    if (!passed && headline !== NOT_YET && !this.done.has(this.level)) this.miss();
    if (whole && !this.done.has(this.level)) {
      this.done.add(this.level);
      this.buttons[this.level].textContent = `✓ ${LEVELS[this.level]}`;
      this.keep([...this.done]);
    }
  }

  ask(text) {
    this.status.className = "attention-verdict";
    this.status.replaceChildren(element(null, "p", {}, text));
  }

  // Gaps: a button for each in the code, and its choices below.
  gaps() {
    const { parts, choices } = this.fill.gaps;
    const chosen = choices.map(() => null);
    const code = element(this.main, "div", { className: "attention-code" });
    let row;
    const add = (part) => {
      for (const [i, text] of part.split("\n").entries()) {
        if (!row || i) row = element(code, "div");
        if (!row.childNodes.length) row.style.setProperty("--indent", text.length - text.trimStart().length);
        row.append(row.childNodes.length ? text : text.trimStart());
      }
    };
    const gaps = choices.map((texts, i) => {
      add(parts[i]);
      const rooms = texts.map((text) => element(null, "span", { textContent: text, ariaHidden: "true" }));
      const shown = element(null, "span", { textContent: i + 1, className: "attention-chosen" });
      return element(row, "button", { type: "button", className: "attention-gap", label: `Gap ${i + 1}: empty`, onclick: () => open(i) }, ...rooms, shown);
    });
    add(parts.at(-1));
    const groups = choices.map((texts, i) => {
      const group = element(null, "fieldset", {}, element(null, "legend", { textContent: `Gap ${i + 1} of ${choices.length}` }));
      const name = `${this.fill.name} ${i} ${Math.random()}`;
      const inputs = texts.map((text, j) => {
        const input = element(null, "input", { type: "radio", name, onchange: () => choose(i, j) });
        element(group, "label", {}, input, element(null, "code", { textContent: text }));
        return input;
      });
      const typed = element(null, "input", { type: "text", autocapitalize: "off", autocomplete: "off", spellcheck: false, placeholder: "or type it, and press Enter", label: `Gap ${i + 1}, typed` });
      typed.onchange = () => {
        const bare = (text) => text.replaceAll(/\s+/g, "");
        const j = texts.findIndex((text) => bare(text) === bare(typed.value));
        if (j >= 0) inputs[(choose(i, j), j)].checked = true;
        else if (typed.value.trim()) this.ask(`${typed.value} isn’t one of the choices.${this.fill.empty ? " To try code of your own, switch to “Empty”." : ""}`);
      };
      group.append(typed);
      return group;
    });
    const place = stack(this.main, ...groups);
    const open = (i) => {
      place.show(groups[i]);
      gaps.forEach((gap, each) => gap.setAttribute("aria-expanded", each === i));
    };
    const choose = (i, j) => {
      chosen[i] = j;
      gaps[i].classList.add("attention-filled");
      gaps[i].setAttribute("aria-label", `Gap ${i + 1}: ${choices[i][j]}`);
      gaps[i].lastChild.textContent = choices[i][j];
      this.say(looked(this.fill.gaps, chosen), chosen.filter((each) => each === null).length, "gaps");
    };
    this.foot(this.fill.gaps);
    this.ask("Choose what goes into each gap. Gaps that are still empty count as filled in correctly.");
    open(0);
  }

  // Lines in disorder: a press moves a line between the heap and the code; in the code it can be moved.
  blocks() {
    const { head, lines, choices } = this.fill.blocks;
    const all = choices.flatMap((texts, slot) => texts.map((text, choice) => ({ text, slot, choice })));
    all.sort((a, b) => (a.text < b.text ? -1 : 1)); // in no order that tells anything
    let code = [];
    const program = element(this.main, "div", { className: "attention-program", role: "group", label: "Your code" });
    const heap = element(this.main, "div", { className: "attention-heap", role: "group", label: "Lines to choose from" });
    for (const place of [program, heap]) {
      place.ondragover = (event) => event.preventDefault();
      place.ondrop = (event) => {
        event.preventDefault();
        const rows = [...program.querySelectorAll(".attention-line")];
        const before = rows.findIndex((row) => event.clientY < row.getBoundingClientRect().top + row.offsetHeight / 2);
        const line = all[event.dataTransfer.getData(PIECE)]; // none, if something else was dropped
        if (line) move(line, place === heap ? null : before < 0 ? rows.length : before);
      };
    }
    // To a place in the code, counted before the line is taken out, or to the heap.
    const move = (line, to, focus) => {
      const from = code.indexOf(line);
      code = code.filter((each) => each !== line);
      if (to !== null) code.splice(from >= 0 && from < to ? to - 1 : to, 0, line);
      draw();
      judge();
      if (focus) [...this.main.querySelectorAll(".attention-line")].find((row) => row.line === line)?.querySelector("button").focus();
    };
    const draw = () => {
      const row = (line, at) => {
        const made = element(null, "div", { className: "attention-line", draggable: true, line });
        made.ondragstart = (event) => event.dataTransfer.setData(PIECE, all.indexOf(line));
        const indent = 4 * lines[line.slot].indent + (at === undefined ? 0 : 4);
        const text = " ".repeat(indent) + line.text;
        const piece = element(made, "button", { type: "button", textContent: text, onclick: () => move(line, at === undefined ? code.length : null, true) });
        piece.style.setProperty("--indent", indent);
        piece.setAttribute("aria-label", at === undefined ? `Add ${line.text}` : `Line ${at + 1}: ${line.text}. Press to take it out, arrow keys to move it.`);
        if (at === undefined) return made;
        piece.onkeydown = (event) => {
          const by = { ArrowUp: -1, ArrowDown: 2 }[event.key];
          if (!by || at + by < 0 || at + by > code.length) return;
          event.preventDefault();
          move(line, at + by, true);
        };
        element(made, "button", { type: "button", textContent: "↑", label: `Move line ${at + 1} up`, disabled: at === 0, onclick: () => move(line, at - 1, true) });
        element(made, "button", { type: "button", textContent: "↓", label: `Move line ${at + 1} down`, disabled: at === code.length - 1, onclick: () => move(line, at + 2, true) });
        return made;
      };
      const begun = head ? [element(null, "pre", { textContent: head })] : [];
      const hint = code.length ? [] : [element(null, "p", { textContent: "Press a line below, and it comes here." })];
      program.replaceChildren(...begun, ...hint, ...code.map(row));
      heap.replaceChildren(...all.filter((line) => !code.includes(line)).map((line) => row(line)));
    };
    const judge = () => {
      const slots = code.map((line) => line.slot);
      const chosen = lines.map((_, slot) => code.find((line) => line.slot === slot)?.choice ?? null);
      const verdict = looked(this.fill.blocks, chosen);
      const twice = code.find((line, i) => slots.indexOf(line.slot) !== i);
      const problem = twice ? `\`${twice.text}\` and another line are two versions of the same step. Keep only one.` : misplaced(slots, code, lines);
      if (problem) this.say({ passed: false, headline: NOT_YET, message: problem }, 0);
      else if (!code.length) this.ask("Put the lines you need in order. Some of the lines are wrong.");
      else this.say(verdict, lines.length - code.length, "lines");
    };
    draw();
    this.foot(this.fill.blocks);
    judge();
  }

  empty() {
    element(this.main, "p", {}, ...marked(this.fill.empty));
  }
}

// Why the lines cannot stand in this order; "" if they can.
function misplaced(slots, code, lines) {
  for (const [i, slot] of slots.entries()) {
    const late = slots.findIndex((other, j) => j > i && lines[slot].after.includes(other));
    if (late >= 0) return `\`${code[i].text}\` comes too early: \`${code[late].text}\` has to come before it.`;
    const opener = slots.slice(0, i).findLast((other) => lines[other].indent < lines[slot].indent) ?? -1;
    if (slots.includes(lines[slot].parent) && opener !== lines[slot].parent) return `\`${code[i].text}\` belongs inside the block that starts with \`${code[slots.indexOf(lines[slot].parent)].text}\`.`;
  }
  return "";
}

// `keep` is told the levels that are solved, and `miss` of each wrong choice in a level that is not.
const mount = (root, fill, done, keep, miss) => new Fill(root, fill, done, keep, miss);

function render({ model, el }) {
  const tell = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  mount(element(el, "div"), model.get("fill"), model.get("done"), (done) => tell("done", done), () => tell("missed", true));
}

export default { render, mount };
