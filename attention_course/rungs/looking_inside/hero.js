// Rung {looking_inside}: every head of a model that writes English, shaded by how much it does one job, and what the chosen one reads.

const PHRASES = {
  "previous token": "the token before",
  induction: "what followed the same word earlier",
  "first token": "the first token",
};

// One byte each, in percent.
const decode = (text) => [...atob(text)].map((byte) => byte.charCodeAt(0) / 100);

function play(stage, { tokens, shape, weights, jobs }) {
  const [layers, heads] = shape;
  const [left, top, cell, down] = stage.fit([48, 24, 19.5, 19.5], [24, 24, 10, 18]); // the map, and the width and height of a cell
  const [asks, reads, half, pitch] = [...stage.fit([262, 384, 14], [284, 402, 26]), (layers * cell) / tokens.length]; // the two rows of tokens
  const x = (token) => left + pitch * (token + 0.5);
  const words = tokens.map((token) => token.trim());
  const percent = (share) => `${Math.round(100 * share)} %`;
  const pairs = tokens.flatMap((_, query) => tokens.slice(0, query + 1).map((_, key) => [query, key])); // as recorded
  const [everyWeight, scores] = [decode(weights), {}];
  for (const [job, { scores: recorded }] of Object.entries(jobs)) scores[job] = decode(recorded);

  let job = "previous token";
  let rank = 0; // of the head that the button of the job chose last
  const ranking = () => scores[job].map((_, head) => head).sort((a, b) => scores[job][b] - scores[job][a]);
  const chosen = { head: ranking()[0], query: tokens.length - 1 }; // heads are counted through all layers
  let looked = {}; // what is pointed at, in place of what is chosen
  let touched = false;
  const seen = () => ({ ...chosen, ...looked });
  const weightsOf = (head) => everyWeight.slice(head * pairs.length, (head + 1) * pairs.length);
  const corner = (head) => [left + cell * Math.floor(head / heads), top + down * (head % heads)];
  const name = (head) => `Layer ${Math.floor(head / heads)}, head ${head % heads}`;

  // The map: a column for each layer, a row for each head.
  const map = svg(stage.svg, "g");
  svg(map, "rect", { x: left, y: top, width: layers * cell, height: heads * down, fill: "var(--panel)" });
  const cells = scores[job].map((_, head) => {
    const [px, py] = corner(head);
    return svg(map, "rect", { x: px + 0.75, y: py + 0.75, width: cell - 1.5, height: down - 1.5, rx: 2, fill: "var(--weight)" });
  });
  const frame = (width) => svg(map, "rect", { width: cell, height: down, rx: 3, fill: "none", stroke: "var(--query)", "stroke-width": width });
  const [pinned, spot] = [frame(1.5), frame(3.5)];
  for (let layer = 0; layer < layers; layer++) {
    if (layer % 5 === 0 || layer === layers - 1) svg(stage.svg, "text", { x: left + cell * (layer + 0.5), y: 11, class: "small muted" }, layer || "layer 0");
  }
  svg(stage.svg, "text", { transform: `translate(${stage.fit(12, 6)} ${top + (heads * down) / 2}) rotate(-90)`, class: "small muted" }, "head");
  for (let head = 0; head < heads; head++) svg(stage.svg, "text", { x: left - stage.fit(8, 3), y: top + down * (head + 0.5), class: "small muted end" }, head);

  const legend = top + heads * down + 14;
  const [scale, shades] = [left + layers * cell - 162, legend + stage.fit(0, 34)];
  const shading = svg(stage.svg, "text", { x: stage.fit(left, 2), y: legend, class: "small start" });
  const count = svg(stage.svg, "text", { x: stage.fit(left, 2), y: legend + 16, class: "small start" });
  svg(stage.svg, "text", { x: scale, y: shades, class: "small muted start" }, "0 %");
  for (const step of [0, 1, 2, 3, 4]) {
    svg(stage.svg, "rect", { x: scale + 28 + 18 * step, y: shades - 6, width: 16, height: 12, rx: 2, fill: "var(--panel)" });
    svg(stage.svg, "rect", { x: scale + 28 + 18 * step, y: shades - 6, width: 16, height: 12, rx: 2, fill: "var(--weight)", opacity: step / 4 });
  }
  svg(stage.svg, "text", { x: left + layers * cell, y: shades, class: "small muted end" }, "100 %");

  // The text, twice: each token above asks, and reads what lies below.
  const beams = pairs.map(([query, key]) => {
    const bend = (asks + reads) / 2;
    return svg(stage.svg, "path", {
      d: `M${x(query)} ${asks + half} C${x(query)} ${bend} ${x(key)} ${bend} ${x(key)} ${reads - half}`,
      fill: "none", stroke: "var(--weight)",
    });
  });
  const chip = (parent, token, y, stroke) => {
    const box = { x: x(token) - pitch / 2 + 3, y: y - half, width: pitch - 6, height: 2 * half, rx: 5, fill: "var(--paper)", stroke };
    svg(parent, "rect", box);
    const shade = svg(parent, "rect", { ...box, fill: "var(--weight)", stroke: "none", opacity: 0 });
    const letters = svg(parent, "text", { transform: `translate(${x(token)} ${y}) rotate(${stage.fit(0, -90)})` }, words[token]);
    return { shade, letters };
  };
  const asking = svg(stage.svg, "g");
  svg(asking, "rect", { x: left, y: asks - half - 2, width: layers * cell, height: 2 * half + 4, fill: "transparent" }); // no gap between tokens
  for (const [y, word] of [[asks, "asks"], [reads, "reads"]]) {
    const at = stage.fit(`translate(${left - 8} ${y})`, `translate(10 ${y}) rotate(-90)`);
    svg(stage.svg, "text", { transform: at, class: `small muted ${stage.fit("end", "")}` }, word);
  }
  tokens.forEach((_, token) => chip(asking, token, asks, "var(--faint)"));
  const asked = svg(asking, "rect", { y: asks - half, width: pitch - 6, height: 2 * half, rx: 5, fill: "none", stroke: "var(--query)", "stroke-width": 3.5 });
  const read = tokens.map((_, token) => {
    const target = svg(stage.svg, "rect", {
      x: x(token) - pitch / 2, y: reads - half - 3, width: pitch, height: 2 * half + 6, rx: 7, fill: "none", stroke: "var(--text)", "stroke-dasharray": "4 3",
    });
    const share = svg(stage.svg, "text", { x: x(token), y: reads + half + 15, class: "small" });
    return { ...chip(stage.svg, token, reads, "var(--key)"), target, share };
  });
  const dashed = svg(stage.svg, "text", { x: left + layers * cell, y: reads + half + 36, class: "small muted end" });

  stage.paint = ({ shades, corner, kept, rows, row, emphasis, query }) => {
    cells.forEach((node, head) => set(node, { opacity: shades[head] }));
    set(spot, { x: corner[0], y: corner[1] });
    set(pinned, { x: kept[0], y: kept[1] });
    set(asked, { x: query - pitch / 2 + 3 });
    pairs.forEach(([from], pair) => {
      set(beams[pair], { "stroke-width": 14 * rows[pair], opacity: rows[pair] < 0.005 ? 0 : 0.16 + 0.64 * emphasis[from] });
    });
    read.forEach(({ shade, letters }, key) => {
      set(shade, { opacity: 0.55 * row[key] });
      set(letters, { opacity: key <= seen().query ? 1 : 0.4 });
    });
  };

  const update = (ms) => {
    const { head, query } = seen();
    const rows = weightsOf(head);
    const row = rows.filter((_, pair) => pairs[pair][0] === query);
    const targets = jobs[job].targets[query];
    const above = scores[job].filter((score) => score > scores[job][head]).length;
    const best = row.indexOf(Math.max(...row));
    read.forEach(({ target, share }, key) => {
      target.style.visibility = targets.includes(key) ? "visible" : "hidden";
      share.textContent = row[key] >= 0.005 ? percent(row[key]) : "";
    });
    const many = scores[job].filter((score) => score >= 0.5).length;
    shading.textContent = `${stage.fit("average ", "")}weight on ${PHRASES[job]}:`;
    count.textContent = `${many} of ${cells.length} heads put ${stage.fit("50 % or more of their weight", "half of it or more")} there`;
    const nothing = `“${words[query]}” ${query ? "appears here for the first time" : "can read only itself"}`;
    dashed.textContent = targets.length ? `dashed: ${PHRASES[job]}` : nothing;
    for (const [name, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", name === job);
    set(map, { "aria-valuetext": tellHead() });
    set(asking, { "aria-valuetext": tellQuery() });
    stage.publish({ job, head: [Math.floor(head / heads), head % heads], query, weights: row, targets, scores: scores[job] });
    stage.say(
      `${name(head)}, on average, has ${percent(scores[job][head])} of its weight on ${PHRASES[job]}: number ${above + 1} of ${cells.length}. ` +
        `From “${words[query]}” it reads ${best === query ? "itself" : `“${words[best]}”`} most, ${percent(row[best])}. ` +
        (touched ? "" : "Point at another cell, or at another token."),
    );
    stage.show({
      shades: scores[job], corner: corner(head), kept: corner(chosen.head), rows, query: x(query),
      row: tokens.map((_, key) => row[key] ?? 0), emphasis: tokens.map((_, token) => Number(token === query)),
    }, ms);
  };

  const look = (at) => {
    const before = seen();
    looked = at;
    if (seen().head === before.head && seen().query === before.query) return;
    touched = true;
    update();
  };
  const choose = (at) => {
    Object.assign(chosen, at);
    looked = {};
    touched = true;
    update();
  };

  // Pointing shows a place, a press chooses it; drags and arrow keys go on from there.
  const explore = (node, label, { at, find, tell, step }) => {
    const place = (event) => {
      return find(...stage.place(event));
    };
    node.addEventListener("pointermove", (event) => look(place(event)));
    node.addEventListener("pointerleave", () => look({}));
    node.addEventListener("pointerdown", (event) => choose(place(event)));
    stage.drag(node, label, { at, move: (px, py) => choose(find(px, py)), tell, step });
    node.style.cursor = "pointer";
  };
  const within = (position, many) => Math.max(0, Math.min(many - 1, Math.floor(position)));
  const tellHead = () => `${name(seen().head)}: ${percent(scores[job][seen().head])}`;
  const tellQuery = () => words[seen().query];
  explore(map, "head", {
    at: () => [0, 1].map((axis) => corner(chosen.head)[axis] + [cell, down][axis] / 2),
    find: (px, py) => ({ head: heads * within((px - left) / cell, layers) + within((py - top) / down, heads) }),
    tell: tellHead,
    step: cell,
  });
  explore(asking, "the token that asks", {
    at: () => [x(chosen.query), asks],
    find: (px) => ({ query: within((px - left) / pitch, tokens.length) }),
    tell: tellQuery,
    step: pitch,
  });

  html(stage.controls, "span", {}, "Shade by");
  const buttons = {};
  for (const name of Object.keys(jobs)) {
    buttons[name] = stage.button(PHRASES[name], () => {
      rank = name === job ? (rank + 1) % 5 : 0; // pressed again: the head that comes next
      job = name;
      choose({ head: ranking()[rank] });
    }, { "aria-pressed": false });
  }
  stage.play = () => {
    job = "induction";
    choose({ head: ranking()[0] });
  }; // once the reader has guessed
  update(0);
}
