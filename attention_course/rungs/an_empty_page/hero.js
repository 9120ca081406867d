// Rung {an_empty_page}: the lines of a GPT, each of which one can write or leave out, and what an examiner finds from outside.

const SENTENCES = {
  embedding: "Each token gets a vector.",
  logits: "Scores for the next token come out.",
  attention: "Each place reads the other places.",
  mask: "A mask hides what comes later.",
  position: "A vector for the place is added.",
  residual: "What is read is added to the rest.",
  "feed-forward": "A feed-forward network follows.",
  norm: "Every part reads normed vectors.",
};

// What a finding says when it is wrong.
const CAUSES = [
  "What comes out isn't logits",
  "Each output knows its own token, and nothing of the past",
  "Outputs change with tokens that come later: it would read the answer",
  "Two earlier tokens can swap places and nothing changes, so it can't see their order",
  "An output's own token counts no more than any other",
];
const WRONG = "wf"; // the verdicts of what is wrong, and of what is wrong because of another finding

const CENTER = 364; // of the tower
const GHOST = 0.3; // how much is seen of what is not there

// Each part of the tower belongs to a line.
function drawTower(stage, lines) {
  const tower = svg(stage.svg, "g", { transform: stage.fit("", "translate(-298 184)") });
  const wire = (node, d) => svg(node, "path", { d, fill: "none", stroke: "var(--muted)", "stroke-width": 1.5 });
  wire(tower, `M ${CENTER} 304 V 34`);
  const ground = svg(tower, "g", { fill: "var(--paper)" }); // hides the wire, also behind a ghost
  const pieces = lines.map(() => svg(tower, "g"));
  const part = (line) => pieces[lines.indexOf(line)];
  const block = (line, y, height) => {
    const box = { x: CENTER - 44, y, width: 88, height, rx: 4 };
    svg(ground, "rect", box);
    svg(part(line), "rect", { ...box, class: "block", fill: "var(--panel)", stroke: "var(--muted)" });
    svg(part(line), "text", { x: CENTER, y: y + Math.min(13, height / 2), class: "small" }, line);
  };
  for (const [from, to] of [[241, 160], [150, 88]]) {
    wire(part("residual"), `M ${CENTER} ${from} H ${CENTER - 54} V ${to} H ${CENTER - 7}`);
    svg(ground, "circle", { cx: CENTER, cy: to, r: 7 });
    svg(part("residual"), "circle", { cx: CENTER, cy: to, r: 7, class: "block", fill: "none", stroke: "var(--muted)" });
    wire(part("residual"), `M ${CENTER - 4} ${to} h 8 m -4 -4 v 8`);
  }
  block("embedding", 278, 24);
  block("position", 248, 24);
  block("attention", 173, 44);
  block("feed-forward", 102, 24);
  block("logits", 34, 24);
  for (const y of [221, 130, 62]) block("norm", y, 14);
  svg(part("mask"), "path", { d: `M ${CENTER - 28} 197 v 14 h 14 z`, class: "block", fill: "var(--panel)", stroke: "var(--muted)" });
  svg(part("mask"), "text", { x: CENTER + 10, y: 204, class: "small" }, "mask");
  svg(tower, "text", { x: CENTER, y: 314, class: "small muted" }, "tokens");
  svg(tower, "text", { x: CENTER, y: 22, class: "small muted" }, "outputs");
  return pieces;
}

function play(stage, { lines, findings, pages }) {
  const [top, pitch, columns, broad] = stage.fit([6, 40, 1, 290], [1, 45, 2, 163]); // of the lines on the page; a line is so wide
  const [left, upper, cell, right] = stage.fit([458, 62, 22, 634], [162, 252, 20, 326]); // the table
  const T = 8;
  const places = Array.from({ length: T }, (_, place) => place);
  const on = lines.map(() => false);
  let last = null; // the line that was written or left out last

  // The page.
  svg(stage.svg, "rect", { x: stage.fit(4, 0.5), y: top, width: columns * broad, height: (lines.length / columns) * pitch + 2, rx: 4, fill: "var(--panel)", stroke: "var(--faint)" });
  const rows = lines.map((line, at) => {
    const row = svg(stage.svg, "g", { class: "line", tabindex: 0, role: "switch", "aria-label": `${line}: ${SENTENCES[line]}`, "aria-checked": false });
    const inColumn = lines.length / columns;
    const x = broad * Math.floor(at / inColumn);
    const y = top + 1 + pitch * (at % inColumn);
    svg(row, "rect", { x: x + stage.fit(8, 1), y: y + stage.fit(3, 0.5), width: broad - stage.fit(8, 2), height: pitch - stage.fit(6, 1), rx: 4, fill: "transparent" });
    if (at % inColumn) svg(row, "path", { d: `M ${x + 16} ${y} h ${broad - 24}`, stroke: "var(--faint)" });
    const mark = svg(row, "text", { x: x + stage.fit(22, 16), y: y + pitch / 2, class: "strong" });
    const words = svg(row, "text", { x: x + stage.fit(38, 30), y: y + pitch / 2, class: "start" }, stage.fit(SENTENCES[line], line));
    const press = () => {
      on[at] = !on[at];
      last = at;
      player.stop();
      update();
    };
    row.addEventListener("click", press);
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press();
    });
    return { row, mark, words };
  });
  const tower = drawTower(stage, lines);

  // The table, with a dashed edge beyond which it has to be empty.
  svg(stage.svg, "text", { x: right, y: upper - 48, class: "small end" }, "which outputs change");
  svg(stage.svg, "text", { x: right, y: upper - 32, class: "small end" }, "with which tokens");
  svg(stage.svg, "rect", { x: left, y: upper, width: T * cell, height: T * cell, fill: "var(--panel)" });
  const cells = places.flatMap((output) => places.map((token) => {
    const leak = output < token;
    const [x, y] = [left + cell * token, upper + cell * output];
    const node = svg(stage.svg, "g", { opacity: 0 });
    const shade = svg(node, "rect", { x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 2, fill: leak ? "var(--wrong)" : "var(--weight)" });
    if (leak) svg(node, "text", { x: x + cell / 2, y: y + cell / 2, class: "small strong", style: "fill: var(--paper)" }, "✗");
    return { node, shade };
  }));
  const edge = places.map((place) => `H ${left + cell * (place + 1)} V ${upper + cell * (place + 1)}`).join(" ");
  svg(stage.svg, "path", { d: `M ${left} ${upper} ${edge}`, fill: "none", stroke: "var(--text)", "stroke-width": 1.5, "stroke-dasharray": "4 3" });
  for (const place of places) {
    svg(stage.svg, "text", { x: left + cell * (place + 0.5), y: upper - 10, class: "small muted" }, place);
    svg(stage.svg, "text", { x: left - 9, y: upper + cell * (place + 0.5), class: "small muted" }, place);
  }
  svg(stage.svg, "text", { transform: `translate(${left - 24} ${upper + (T * cell) / 2}) rotate(-90)`, class: "small muted" }, "output");
  svg(stage.svg, "text", { x: left - 9, y: upper - 10, class: "small muted end" }, "token");
  ["dashed: beyond it nothing", "may change. ✗ is a leak"].forEach((words, row) => {
    svg(stage.svg, "text", { x: right, y: upper + T * cell + 16 + 16 * row, class: "small muted end" }, words);
  });

  // What the examiner says.
  const [report, inColumns] = stage.fit([348, 3], [520, 5]);
  svg(stage.svg, "text", { x: stage.fit(10, 2), y: report, class: "small muted start" }, "The examiner sees none of this. It finds:");
  const said = findings.map((name, at) => {
    const [x, y] = [at < inColumns ? stage.fit(10, 2) : 250, report + 22 + 21 * (at % inColumns)];
    const sign = svg(stage.svg, "text", { x: x + 6, y, class: "strong" });
    return { sign, words: svg(stage.svg, "text", { x: x + 20, y, class: "small start" }, name) };
  });

  const style = svg(stage.svg, "style");
  style.textContent = `[data-hero="an_empty_page"] {
    .line { cursor: pointer }
    .line:hover rect { stroke: var(--query) }
    .lit .block { stroke: var(--weight); stroke-width: 3 }
  }`;

  stage.paint = ({ there, levels }) => {
    there.forEach((share, at) => {
      set(tower[at], { opacity: GHOST + (1 - GHOST) * share });
      set(rows[at].words, { opacity: 0.6 + 0.4 * share });
    });
    cells.forEach(({ node, shade }, at) => {
      set(node, { opacity: Math.min(1, levels[at]) });
      set(shade, { opacity: 0.15 + 0.85 * (levels[at] / 9) });
    });
  };

  const describe = (verdicts) => {
    if (!on.includes(true)) return "An empty page. Press Step for the next line of a GPT, or press a line to write it.";
    const change = last === null ? "" : `${on[last] ? "Written" : "Left out"}: ${lines[last]}. `;
    const wrong = [...verdicts].findIndex((verdict) => WRONG.includes(verdict));
    if (wrong >= 0) return `${change}✗ ${on[0] ? CAUSES[wrong] : "Tokens have no vectors, so nothing can be computed"}.${last === null || on[last] ? " Which line fixes it?" : ""}`;
    if (on.includes(false)) return `${change}All ✓, and yet not all lines are there. These five questions can't tell.`;
    return "All ✓: a GPT. Press a line to leave it out, and see which finding notices.";
  };

  const update = (ms) => {
    const page = pages[on.map(Number).join("")];
    const [verdicts, table] = [page.slice(0, findings.length), page.slice(findings.length)];
    rows.forEach(({ row, mark }, at) => {
      set(row, { "aria-checked": on[at] });
      mark.textContent = on[at] ? at + 1 : "+";
      tower[at].classList.toggle("lit", on[at] && at === last);
    });
    said.forEach(({ sign, words }, at) => {
      const wrong = WRONG.includes(verdicts[at]);
      sign.textContent = wrong ? "✗" : verdicts[at] === "r" ? "✓" : "–";
      sign.style.fill = wrong ? "var(--wrong)" : verdicts[at] === "r" ? "var(--weight)" : "var(--muted)";
      words.textContent = findings[at] + (verdicts[at] === "f" ? stage.fit(" (follows)", "") : "");
      words.classList.toggle("muted", !wrong && verdicts[at] !== "r");
    });
    const levels = cells.map((_, at) => Number(table[at] ?? 0));
    stage.say(describe(verdicts));
    stage.publish({ on: lines.filter((_, at) => on[at]), verdicts, levels });
    return stage.show({ there: on.map(Number), levels }, ms);
  };

  const player = stage.player(lines.length, (step) => {
    if (step === 0) on.fill(false);
    else on[step - 1] = true;
    last = step ? step - 1 : null;
    return update();
  }, 1800);
  update(0);
}
