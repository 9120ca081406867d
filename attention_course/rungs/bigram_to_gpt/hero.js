// Rung {bigram_to_gpt}: one part after another is added to a table of pairs, until it is a GPT; a staircase shows what each is worth.

const PARTS = [
  ["bigram", "a table says what follows each letter. It looks at one letter only"],
  ["mean of the past", "each place gets the mean of all letters so far, so nobody knows which one came last"],
  ["one head", "attention chooses which earlier letters to look at"],
  ["position", "a vector for each place is added, so that a head can tell where a letter stands"],
  ["four heads", "each of them looks in its own way, at four places at once"],
  ["feed-forward", "after looking around, each place works on what it found"],
  ["residual", "each part adds to what is there, and so nothing gets lost"],
  ["LayerNorm", "each part reads numbers of the same scale"],
  ["second layer", "all of it once more: now a head can look at what the first layer noted"],
];

const FIRST =
  "Who got the drum? A table of pairs sees one letter, and its answer is wrong. Press Step to add a part.";

const FLOORS = { "1-gram": "knows how often each letter comes", "2-gram": "best table of pairs", "3-gram": "best table of three letters", grammar: "only chance is left" };

const CENTER = 100; // of the tower
const GROUND = 342; // where the first layer stands
const LAYER = 122; // its height
const TOP = GROUND - 2 * LAYER; // of the second one
const GHOST = 0.25; // how much is seen of what is still to come

// The tower stands from the start, as a ghost. A piece belongs to a part; it is there from that part on, or until another.
function drawModel(stage) {
  const pieces = [];
  // On a phone it stands below the staircase, and its blocks are flat.
  const tower = svg(stage.svg, "g", { transform: stage.fit("", "translate(50 354) scale(1 0.56)"), class: stage.fit("", "flat") });
  const piece = (part, until = Infinity) => {
    const node = svg(tower, "g");
    pieces.push({ part, until, node });
    return node;
  };
  const block = (node, y, label, height = 24) => {
    svg(node, "rect", { x: CENTER - 58, y, width: 116, height, rx: 4, class: "block" });
    if (label) svg(node, "text", { x: CENTER, y: y + height / 2, class: "small" }, label);
  };
  const plus = (node, y) => {
    svg(node, "circle", { cx: CENTER, cy: y, r: 7, class: "block" });
    svg(node, "path", { d: `M ${CENTER - 4} ${y} h 8 M ${CENTER} ${y - 4} v 8`, class: "wire" });
  };
  const heads = (node, ground) => {
    for (const shift of [6, 4, 2]) svg(node, "rect", { x: CENTER - 58 + shift, y: ground - 38 - shift, width: 116, height: 24, rx: 4, class: "block" });
    block(node, ground - 38, "attention");
  };
  const bypasses = (node, ground) => {
    for (const [from, to] of [[ground, ground - 54], [ground - 64, ground - 112]]) {
      svg(node, "path", { d: `M ${CENTER} ${from} H 24 V ${to} H ${CENTER - 7}`, class: "wire" });
      plus(node, to);
    }
  };
  const norms = (node, ground) => [ground - 11, ground - 75].forEach((y) => block(node, y, "", 5));

  svg(tower, "line", { x1: CENTER, x2: CENTER, y1: 396, y2: TOP - 54, class: "wire" });
  svg(tower, "text", { x: CENTER, y: 406, class: "small code" }, "Kind → 9 22 26 17");
  svg(tower, "text", { x: CENTER, y: stage.fit(424, 432), class: "small muted" }, "each letter has a number");
  block(piece(1), 366, "letter → vector");
  const position = piece(3);
  svg(position, "path", { d: `M 162 353 H ${CENTER + 7}`, class: "wire" });
  svg(position, "rect", { x: 158, y: 342, width: 60, height: 22, rx: 4, class: "block" });
  svg(position, "text", { x: 188, y: 353, class: "small" }, "position");
  plus(position, 353);
  heads(piece(4), GROUND);
  block(piece(5), GROUND - 102, "feed-forward");
  bypasses(piece(6), GROUND);
  norms(piece(7), GROUND);
  const second = piece(8);
  for (const draw of [bypasses, norms, heads]) draw(second, GROUND - LAYER);
  block(second, GROUND - LAYER - 102, "feed-forward");

  block(piece(1), TOP - 46, "vector → logits");
  block(piece(7), TOP - 18, "", 5);
  [6, 3, 14, 5, 9, 24, 4, 8].forEach((height, at) => svg(tower, "rect", { x: CENTER - 42 + 11 * at, y: TOP - 54 - height, width: 8, height, fill: "var(--mix)" }));
  svg(tower, "text", { x: CENTER + 52, y: TOP - 62, class: "small muted start" }, "logits");

  // What gives way to a later part hides the ghost of it.
  block(piece(0, 1), 297, "table of pairs", 96);
  block(piece(1, 2), GROUND - 38, "mean of the past");
  block(piece(2, 4), GROUND - 38, "attention");
  return pieces;
}

function fade(node, share) {
  node.style.opacity = share;
  node.style.visibility = share ? "visible" : "hidden"; // what is not there cannot be pointed at or read aloud
}

// The pieces of a text, and whether an answer in it agrees with the story that it is in.
function judge(text) {
  const [, who, what, where] = /gave poor (\w+) a (\w+) at the (\w+)\./.exec(text);
  const told = { "Who got it? Poor ": who, "What? A ": what, "Where? At the ": where };
  return text.split(/((?:Who got it\? Poor |What\? A |Where\? At the )\w*\W?)/).flatMap((part) => {
    const question = Object.keys(told).find((question) => part.startsWith(question));
    const answer = part.slice(question?.length);
    return question ? [{ text: question }, { text: answer, right: answer === `${told[question]}.` }] : part ? [{ text: part }] : [];
  });
}

function play(stage, { floors, prompt, parts }) {
  const [left, right, top, bottom] = stage.fit([250, 618, 14, 222], [28, 325, 20, 166]);
  const [ground, tall] = stage.fit([290, 34], [222, 24]); // the bars of accuracy
  const wide = (right - left) / parts.length;
  const x = (part) => left + wide * part;
  const y = (loss) => top + ((bottom - top) * Math.log(4 / loss)) / Math.log(4 / 0.085);
  const percent = (accuracy) => `${Math.round(100 * accuracy)} %`;
  let built = 0; // the last part that is there
  let chosen = null; // the part that is pointed at
  let started = false;
  const pieces = drawModel(stage);

  for (const loss of [0.1, 0.2, 0.5, 1, 2, 4]) svg(stage.svg, "text", { x: left - 6, y: y(loss), class: "small muted end" }, String(loss));
  svg(stage.svg, "path", { d: `M ${left} ${top} V ${bottom} H ${right}`, class: "axis" });
  svg(stage.svg, "text", { x: left + 6, y: stage.fit(top - 8, 6), class: "small start" }, "loss, on a logarithmic scale: low is good");
  svg(stage.svg, "text", { x: left + 6, y: bottom + 16, class: "small start" }, "answer accuracy");
  const stairs = parts.map((_, part) => {
    const node = svg(stage.svg, "g");
    const back = svg(node, "rect", { x: x(part) + 1, y: top, width: wide - 2, height: stage.fit(324, 262), rx: 4, fill: "var(--query)" });
    const middle = x(part) + wide / 2;
    const guess = svg(node, "g", { class: "guess" });
    svg(guess, "rect", { x: x(part) + 3, y: top + 8, width: wide - 6, height: bottom - top - 8, rx: 4 });
    svg(guess, "text", { x: middle, y: y(0.28) }, "?");
    svg(guess, "text", { x: middle, y: ground - tall / 2 }, "?");
    svg(node, "rect", { x: x(part) + 3, y: ground - tall, width: wide - 6, height: tall, class: "axis" });
    svg(node, "text", { x: Math.min(middle, stage.width - stage.fit(0, 46 + 28 * (parts.length - 1 - part))), y: ground + 12 + 15 * (part % stage.fit(2, 3)), class: "small" }, PARTS[part][0]);
    const rise = svg(node, "line", { x1: x(part), x2: x(part), class: "rise" });
    const tread = svg(node, "line", { x1: x(part), x2: x(part) + wide, class: "tread" });
    const loss = svg(node, "text", { x: middle + stage.fit(0, 3), class: "small halo" }, number(parts[part].loss, 3).replace(stage.fit("", /^0/), ""));
    const bar = svg(node, "rect", { x: x(part) + 3, width: wide - 6, fill: "var(--weight)" });
    const share = svg(node, "text", { x: middle, class: "small halo" }, percent(parts[part].accuracy));
    stage.point(node, part, PARTS[part][0], look);
    return { node, back, guess, rise, tread, loss, bar, share };
  });
  for (const [name, label] of Object.entries(FLOORS)) {
    const level = y(floors[name]);
    svg(stage.svg, "line", { x1: left, x2: right, y1: level, y2: level, stroke: "var(--text)", "stroke-dasharray": "5 5", opacity: 0.5 });
    const low = name === "grammar"; // the staircase ends just above this one
    svg(stage.svg, "text", { x: low ? left + 6 : right, y: level - 8, class: `small muted ${low ? "start" : "end"}` }, label);
  }
  for (const { loss, share } of stairs) svg(stage.svg, "g", { "pointer-events": "none" }).append(loss, share); // no line crosses them
  for (const { part, node } of pieces) {
    node.addEventListener("pointerenter", () => look(part));
    node.addEventListener("pointerleave", () => look(stage.pinned?.key ?? null));
    node.addEventListener("click", () => stairs[part].node.dispatchEvent(new MouseEvent("click")));
  }
  const [edge, above, columns] = stage.fit([240, 334, 48], [0, 274, 39]); // the sheet, and the characters in a line of what it writes
  svg(stage.svg, "rect", { x: edge, y: above, width: stage.width - edge - stage.fit(2, 0), height: stage.fit(96, 88), rx: 6, fill: "var(--panel)" });
  svg(stage.svg, "text", { x: edge + stage.fit(10, 6), y: above + 13, class: "small muted start" }, "it reads the pale text, and goes on");
  const lines = [0, 1, 2].map((row) => svg(stage.svg, "text", { x: edge + stage.fit(10, 6), y: above + 34 + 20 * row, class: "start code" }));

  const style = svg(stage.svg, "style");
  style.textContent = `[data-hero="bigram_to_gpt"] {
    .block { fill: var(--panel); stroke: var(--muted); stroke-width: 1.2; stroke-opacity: var(--there) }
    .wire { fill: none; stroke: var(--muted); stroke-width: 1.5; stroke-opacity: var(--there) }
    .block + text { opacity: var(--there) }
    .lit :is(.block, .wire) { stroke: var(--weight); stroke-width: 2.5 }
    .chosen :is(.block, .wire) { stroke: var(--query); stroke-width: 3.5 }
    .axis { fill: none; stroke: var(--faint) }
    .guess rect { fill: var(--panel); fill-opacity: 0.6 }
    .guess text { fill: var(--muted) }
    .rise { stroke: var(--weight); stroke-width: 1.5 }
    .flat :is(text, circle) { transform: scaleY(1.786); transform-box: fill-box; transform-origin: center }
    .tread { stroke: var(--weight); stroke-width: 4 }
  }`;

  stage.paint = ({ there, levels, accuracies }) => {
    for (const { part, until, node } of pieces) {
      if (until < parts.length) fade(node, there[part] * (1 - there[until]));
      node.style.setProperty("--there", GHOST + (1 - GHOST) * there[part]);
    }
    stairs.forEach(({ guess, rise, tread, loss, bar, share }, part) => {
      for (const node of [rise, tread, loss, bar, share]) fade(node, there[part]);
      fade(guess, 1 - there[part]);
      set(tread, { y1: levels[part], y2: levels[part] });
      set(rise, { y1: levels[Math.max(0, part - 1)], y2: levels[part] });
      set(loss, { y: levels[part] - 11 });
      set(bar, { y: ground - tall * accuracies[part], height: tall * accuracies[part] });
      set(share, { y: ground - 10 - tall * accuracies[part] });
    });
  };

  function write(text) {
    let [row, column, given] = [0, 0, prompt.length];
    for (const line of lines) line.replaceChildren();
    for (const { text: part, right } of judge(text)) {
      const color = given > 0 ? "var(--muted)" : right === undefined ? "var(--text)" : right ? "var(--weight)" : "var(--wrong)";
      given -= part.length;
      for (const word of right === undefined ? part.match(/\S+\s?|\s/g) : [`${part.trim()} ${right ? "✓" : "✗"}${part.endsWith(" ") ? " " : ""}`]) {
        if (column + word.trimEnd().length > columns) [row, column] = [row + 1, 0];
        if (column === 0 && word === " ") continue;
        if (lines[row]) svg(lines[row], "tspan", { fill: color, "font-weight": right === undefined ? 400 : 600 }, word);
        column += word.length;
      }
    }
  }

  function look(part) {
    chosen = part;
    tell();
  }

  function tell() {
    const part = chosen ?? built;
    const known = part <= built;
    const { loss, accuracy, line } = parts[part];
    stairs.forEach(({ back }, at) => set(back, { "fill-opacity": at === chosen ? 0.15 : 0 }));
    for (const { part: of, node } of pieces) {
      node.classList.toggle("lit", of === built);
      node.classList.toggle("chosen", of === chosen);
    }
    if (known) write(prompt + line);
    const [name, what] = PARTS[part];
    const worth = known ? `Loss ${number(loss, 3)}, ${percent(accuracy)} of the answers right.` : "Guess what it is worth, then step to it.";
    stage.say(started || chosen !== null ? `${name[0].toUpperCase()}${name.slice(1)}: ${what}. ${worth}` : FIRST);
    const answers = judge(prompt + line).filter((piece) => piece.right !== undefined);
    stage.publish({ built, chosen, part: parts[part].name, shown: parts.slice(0, built + 1).map(({ loss, accuracy }) => [loss, accuracy]), answers });
  }

  const go = (part, ms) => {
    built = part;
    tell();
    const level = (at) => y(parts[Math.min(at, built)].loss); // the next stair falls from this one
    return stage.show({
      there: parts.map((_, at) => Number(at <= part)),
      levels: parts.map((_, at) => level(at)),
      accuracies: parts.map(({ accuracy }, at) => (at <= part ? accuracy : 0)),
    }, ms);
  };
  stage.player(parts.length - 1, (part) => {
    started = true;
    return go(part);
  }, 1800);
  go(0, 0);
}
