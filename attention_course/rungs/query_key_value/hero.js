// Rung {query_key_value}: the query of one letter goes to all keys, and the value that matches flies back. A column is a key, a row
// is a stage of the head. The head finds the last consonant for a vowel, and the last vowel for a consonant.

const LAST = 8; // the stages that Step walks through; those to come are pale
const PALE = 0.08; // a place is seen to be there, and not what it will hold
const ROWS = [
  // the step, the name, and what it is
  [0, "the word", "pick a letter"],
  [1, "query: kind, place", "what it asks for"],
  [2, "keys: kind, place", "1 vowel, −1 consonant"],
  [3, "dot product", "query · key"],
  [4, "÷ √2", "for 2 channels"],
  [5, "mask", "later ones are hidden"],
  [6, "softmax", "weights sum to 1"],
  [7, "× value", "it hands over a letter"],
  [8, "sum", "the output"],
];

const WORD = 62; // the height of the word
const list = (vector) => vector.map((value) => number(value)).join(", ");
const place = (node, x, y, opacity = 1) => set(node, { transform: `translate(${x} ${y})`, opacity });

// 0 is hidden by the mask; what is nearly 0 reads 0.00.
const share = (weight) => (weight ? weight.toFixed(2) : "0");

function chip(parent, width, colour) {
  const group = svg(parent, "g");
  svg(group, "rect", { x: -width / 2, y: -11, width, height: 22, rx: 5, fill: colour, "fill-opacity": 0.15, stroke: colour });
  svg(group, "text");
  return group;
}

// The way back over the word, from key s to the letter that asks; a loop if they are the same.
function arc(from, to) {
  const loop = Math.max(0, 16 - Math.abs(to - from));
  const top = WORD - 44 - Math.abs(to - from) / 20;
  return `M ${from - loop} ${WORD - 20} C ${from - loop} ${top} ${to + loop} ${top} ${to + loop} ${WORD - 20}`;
}

function play(stage, { text, vowels, queries }) {
  const [QUERY, KEY, PRODUCT, SCORE, SCALED, MASK, BARS, SHARE, OUTPUT] = stage.fit(
    [108, 160, 183, 203, 241, 276, 350, 378, 434],
    [112, 170, 210, 231, 272, 311, 396, 430, 473],
  );
  const heads = stage.fit([WORD, QUERY, KEY, 197, SCALED, MASK, 325, SHARE, OUTPUT].map((y) => y - 8), [0, 91, 142, 193, 252, 292, 331, 410, 452]); // where the rows are named
  const [PITCH, first, wide] = stage.fit([78, 202, 62], [54, 28, 50]); // from one column to the next, the middle of the first, a chip
  const column = (s) => first + PITCH * s;
  const turn = stage.fit(4, 3); // from this letter on, the question stands on the left
  const word = [...text];
  const letters = [...new Set(word)]; // the channels of a value
  const kinds = word.map((a) => (vowels.includes(a) ? "vowel" : "consonant"));
  const q = kinds.map((kind) => queries[kind]);
  const k = kinds.map((kind, s) => [kind === "vowel" ? 1 : -1, s]);
  const v = word.map((a) => letters.map((b) => Number(a === b)));
  let t = 3; // who asks
  let step = 0;
  let updates = 0;
  let pointed = null; // a column, or a letter of the output

  const head = () => {
    const scores = k.map((key) => dot(q[t], key));
    const scaled = scores.map((score) => score / Math.sqrt(2));
    const weights = softmax(scaled.map((score, s) => (s > t ? -Infinity : score)));
    const output = letters.map((_, i) => dot(weights, v.map((value) => value[i])));
    return { scores, scaled, weights, output };
  };
  let stages = head();
  const largest = (values) => values.indexOf(Math.max(...values));
  const terms = (s) => q[t].map((value, i) => `${number(value)}·${number(k[s][i])}`).join("\u2009+\u2009");
  const wanted = () => (kinds[t] === "vowel" ? "consonant" : "vowel");
  const products = (s) => q[t].map((value, i) => number(value * k[s][i])).join(" + ");
  const name = (at) => `“${word[at]}” (place ${at})`;

  // Whether something has a part in what is pointed at: `a` is the letter, `s` the column, if it is in one.
  // Before the first step it is shown whole, and all else is pale; later all else steps back.
  const marked = (a, s) => pointed !== null && (pointed === a || pointed === s || (s === undefined && word[pointed] === a));
  const lit = (a, s) => (pointed === null || !step || marked(a, s) ? 1 : 0.25);

  // Painted from back to front.
  const hatch = svg(svg(stage.svg, "defs"), "pattern", { id: "hidden-keys", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  svg(hatch, "rect", { width: 7, height: 7, fill: "var(--panel)" });
  svg(hatch, "rect", { width: 1, height: 7, fill: "var(--faint)", opacity: 0.3 });
  const shutter = svg(stage.svg, "rect", { y: MASK - 13, fill: "url(#hidden-keys)", stroke: "var(--faint)" });
  const named = stage.fit(ROWS, [[0, "", ""], ...ROWS.slice(1)]); // on a phone one sees what the word is
  const titles = named.map(([count, title, note], row) => {
    const group = svg(stage.svg, "g");
    const y = heads[row];
    svg(group, "text", { x: 2, y, class: "start muted" }, count || "");
    const name = svg(group, "text", { x: 14, y, class: "start strong" }, title);
    if (stage.narrow) svg(name, "tspan", { fill: "var(--muted)", "font-weight": 400, "font-size": 12, dx: 8 }, note);
    else svg(group, "text", { x: 14, y: y + 16, class: "start small muted" }, note);
    return group;
  });
  const flows = word.map(() => ({
    ask: svg(stage.svg, "line", { stroke: "var(--query)", "stroke-width": 1.5 }),
    courier: svg(stage.svg, "circle", { r: 4, fill: "var(--query)" }),
    pour: svg(stage.svg, "line", { stroke: "var(--mix)" }),
    back: svg(stage.svg, "path", { fill: "none", stroke: "var(--weight)", "stroke-linecap": "round" }),
  }));
  const columns = word.map((a, s) => {
    const group = svg(stage.svg, "g");
    const band = svg(group, "rect", { x: column(s) - PITCH / 2, y: KEY - 15, width: PITCH, height: SHARE - KEY + 30, rx: 6, fill: "transparent", stroke: "var(--text)", "stroke-opacity": 0 });
    const key = chip(group, stage.fit(58, 50), "var(--key)");
    place(key, column(s), KEY);
    key.lastChild.textContent = list(k[s]);
    const parts = { group, band, key, products: svg(group, "text", { class: "small" }) };
    parts.score = chip(group, wide, "none");
    parts.scaled = chip(group, wide, "none");
    parts.mask = svg(group, "text", { class: "halo" });
    parts.bar = svg(group, "rect", { x: column(s) - 16, width: 32, fill: "var(--weight)" });
    parts.weight = svg(group, "text", { class: "strong halo" });
    parts.share = chip(group, stage.fit(68, 53), "var(--mix)");
    set(parts.share.lastChild, { class: stage.fit("", "small") });
    stage.point(group, s, `key ${s}, letter ${a}`, look);
    return parts;
  });
  word.forEach((a, s) => {
    const tile = svg(stage.svg, "g", { class: "pointable" });
    svg(tile, "rect", { x: column(s) - 21, y: WORD - 20, width: 42, height: 40, rx: 6, fill: "var(--panel)", stroke: "var(--faint)" });
    svg(tile, "text", { x: column(s) - 3, y: WORD - 1, style: "font-size: 22px" }, a);
    svg(tile, "text", { x: column(s) + 12, y: WORD + 10, class: "small muted" }, s);
    tile.addEventListener("click", () => pick(s));
  });
  const cells = letters.map((a) => {
    const target = svg(stage.svg, "g");
    if (stage.narrow) svg(target, "rect", { x: column(letters.indexOf(a)) - 26, y: OUTPUT - 22, width: 52, height: 44, fill: "transparent" });
    stage.point(target, a, `output, letter ${a}`, look);
    return chip(target, wide, "var(--mix)");
  });
  const verdict = svg(stage.svg, "text", { class: "start strong" });
  const asker = svg(stage.svg, "g");
  svg(asker, "rect", { x: -23, y: WORD - 22, width: 46, height: 44, rx: 8, fill: "transparent", stroke: "var(--query)", "stroke-width": 3 });
  const query = svg(asker, "g");
  svg(query, "line", { y1: WORD + 22, y2: QUERY - 11, stroke: "var(--query)", "stroke-width": 3 });
  const numbers = chip(query, stage.fit(58, 50), "var(--query)");
  place(numbers, 0, QUERY);
  const question = svg(stage.svg, "text");
  const answer = svg(stage.svg, "g");
  svg(answer, "rect", { x: -10, y: -10, width: 20, height: 20, rx: 5, fill: "var(--mix)" });
  svg(answer, "text", { class: "strong", style: "fill: var(--paper)" });

  stage.paint = (now) => {
    const from = column(now.asker);
    const at = (row) => Math.max(0, Math.min(1, now.seen - row + 1)); // how far a stage has come
    const veil = (row) => PALE + (1 - PALE) * at(row);
    place(asker, from, 0);
    place(question, from + (t < turn ? 38 : -38), QUERY);
    set(shutter, { x: from + PITCH / 2, width: PITCH * (word.length - 1 - now.asker), height: SHARE - MASK + 26, opacity: veil(5) });
    titles.forEach((title, row) => set(title, { opacity: row < 2 ? 1 : 0.4 + veil(ROWS[row][0]) }));
    columns.forEach((parts, s) => {
      const x = column(s);
      const light = lit(word[s], s);
      const shown = (row) => (!step && marked(word[s], s) ? 1 : veil(row));
      set(parts.group, { opacity: light });
      set(parts.band, { "stroke-opacity": Number(marked(word[s], s)) });
      place(parts.key, x, KEY, shown(2));
      place(parts.products, x, PRODUCT, shown(3));
      for (const [cell, value] of [[parts.score, now.scores[s]], [parts.scaled, now.scaled[s]]]) {
        set(cell.firstChild, { fill: value < 0 ? "var(--negative)" : "var(--weight)", "fill-opacity": Math.abs(value) / 28 });
        cell.lastChild.textContent = number(value);
      }
      place(parts.score, x, SCORE, shown(3));
      place(parts.scaled, x, SCALED, shown(4));
      place(parts.mask, x, MASK, shown(5));
      const height = 44 * now.weights[s];
      set(parts.bar, { y: BARS - height, height, opacity: shown(6) });
      place(parts.weight, x, BARS - height - 9, shown(6));
      parts.weight.textContent = share(now.weights[s]);
      place(parts.share, x, SHARE, shown(7));
      set(parts.share.firstChild, { "fill-opacity": 0.5 * now.weights[s], "stroke-opacity": 0.15 + 0.85 * Math.min(1, 2 * now.weights[s]) });
      parts.share.lastChild.textContent = `${share(now.weights[s])}${stage.fit(" × ", "×")}${word[s]}`;
      const { ask, courier, pour, back } = flows[s];
      const tip = between([from, QUERY + 11], [x, KEY - 11], now.ask);
      set(ask, { x1: from, y1: QUERY + 11, x2: tip[0], y2: tip[1], opacity: 0.6 * light * shown(3) });
      set(courier, { cx: tip[0], cy: tip[1], opacity: light * shown(3) });
      set(pour, { x1: x, y1: SHARE + 11, x2: column(letters.indexOf(word[s])), y2: OUTPUT - 11, "stroke-width": 9 * now.weights[s], opacity: 0.7 * light * shown(8) });
      set(back, { d: arc(x, from), "stroke-width": 9 * now.weights[s], opacity: 0.85 * light * now.arcs });
    });
    cells.forEach((cell, i) => {
      place(cell, column(i), OUTPUT, lit(letters[i]) * (!step && marked(letters[i]) ? 1 : veil(8)));
      set(cell.firstChild, { "fill-opacity": 0.5 * now.output[i] });
      cell.lastChild.textContent = `${letters[i]} ${share(now.output[i])}`;
    });
    place(verdict, column(4) - 30, OUTPUT, veil(8));
    const way = flows[largest(stages.weights)].back;
    const { x, y } = way.getPointAtLength(now.answer * way.getTotalLength());
    place(answer, x, y - 12, now.answered);
  };

  function look(key) {
    pointed = key;
    stage.paint(stage.shown);
    tell();
  }

  function tell() {
    const { scores, scaled, weights, output } = stages;
    const [top, best] = [largest(scores), largest(weights)];
    const asks = name(t);
    if (typeof pointed === "string") {
      const from = word.flatMap((a, s) => (a === pointed ? [share(weights[s])] : []));
      return stage.say(`The output has ${share(output[letters.indexOf(pointed)])} of “${pointed}”: ${from.join(" + ")}, one share for each “${pointed}” in the word.`);
    }
    if (pointed !== null) {
      const s = pointed;
      return stage.say([
        `${asks} asks ${name(s)}: ${terms(s)} = ${number(scores[s])}.`,
        `÷ √2: ${number(scaled[s])}.`,
        s <= t ? "" : `But “${word[s]}” comes later: the mask hides it.`,
        `Weight ${share(weights[s])}.`,
        `So the output gets ${share(weights[s])} × “${word[s]}”.`,
      ].slice(0, step ? Math.max(1, step - 2) : LAST).filter(Boolean).join(" "));
    }
    const found = kinds[best] === wanted() ? `finds “${word[best]}”` : "finds only itself";
    stage.say([
      `${asks} looks for the last ${wanted()} up to its own place, and ${found}. Press Step to see how, point at a column, or click another letter.`,
      `${asks} asks with its query, (${list(q[t])}). The ${number(q[t][0])} wants a ${wanted()}, and the ${q[t][1]} wants a late place.`,
      `Every letter holds up a key: 1 for a vowel or −1 for a consonant, and its place. The key of ${name(best)} is (${list(k[best])}).`,
      `The query meets every key. Multiply channel by channel and add up, and you have a score. The highest is ${scores[top]}, for ${name(top)}.`,
      `Each score is divided by √2, because query and key have 2 channels, so ${scores[best]} becomes ${number(scaled[best])}. The next rung explains why.`,
      t < word.length - 1 ? `Letters after place ${t} are hidden. However high their scores were, they are −∞ now.` : "No letter comes after the last one, so the mask hides nothing.",
      `Softmax turns what is left into weights that sum to 1. ${name(best)} gets ${share(weights[best])}.`,
      `Each letter hands over its value, here the letter itself, but only as much of it as its weight says, such as ${share(weights[best])} × “${word[best]}”.`,
      `The shares add up to the output. It reads as “${word[best]}” and flies back: “${word[t]}” looked for the last ${wanted()}, and ${found}.`,
    ][step]);
  }

  // Show what letter t asks and finds; with `flight`, the query sets out first, and then the answer.
  async function update(flight) {
    const best = largest(stages.weights);
    titles.forEach((title, row) => (title.children[1].style.fill = step && ROWS[row][0] === step ? "var(--weight)" : ""));
    numbers.lastChild.textContent = list(q[t]);
    question.textContent = `the last ${wanted()}?`;
    set(question, { class: t < turn ? "start" : "end" });
    columns.forEach((parts, s) => {
      parts.products.textContent = products(s);
      parts.mask.textContent = s > t ? "−∞" : "↓";
    });
    verdict.textContent = `→ reads as “${word[best]}”`;
    answer.lastChild.textContent = word[best];
    asker.setAttribute("aria-valuetext", `“${word[t]}”, place ${t}`);
    stage.publish({ t, step, q, k, v, ...stages, answer: word[best] });
    tell();
    const over = !step || step === LAST; // the answer is told before the first step, and at the last
    const state = { asker: t, seen: step, ask: 1, answer: 1, arcs: over || step > 5 ? 1 : PALE, answered: Number(over), ...stages };
    const mine = ++updates;
    if (flight || step === LAST) {
      stage.shown = { ...stage.shown, ask: flight ? 0 : 1, answer: 0 };
      await stage.show({ ...state, answer: 0 });
      if (mine !== updates) return; // something newer is shown
    }
    return stage.show(state);
  }

  function pick(s) {
    const next = Math.max(0, Math.min(word.length - 1, s));
    if (next === t) return;
    player.stop();
    t = next;
    stages = head();
    update(true);
  }

  stage.drag(asker, "the letter that asks", {
    at: () => [column(t), WORD],
    move: (x) => pick(Math.round((x - column(0)) / PITCH)),
    tell: () => `“${word[t]}”, place ${t}`,
    step: PITCH,
  });
  const player = stage.player(LAST, (next) => {
    step = next;
    return update(false);
  });
  update(false);
}
