// Rung {a_real_model}: SmolLM2 runs with an attention of the reader's, and writes; then with one line of it wrong.

// One byte each, in percent.
const shares = (text) => [...atob(text)].map((byte) => byte.charCodeAt(0) / 100);
const visible = (token) => token.replaceAll("\n", "↵").replace(/^ /, "");
const percent = (share) => `${Math.round(100 * share)} %`;

function play(stage, { tokens, head, guess, attentions }) {
  const [right, ...bugs] = attentions;
  const T = tokens.length;
  const words = tokens.map((token) => token.trim());
  const many = right.written.length; // tokens that each of them writes
  const [SWAP, LAST] = [many + 1, 2 * many + 1]; // the steps at which the wrong line goes in, and at which all is written
  const [left, zero, unit] = stage.fit([8, 44, 22], [2, 40, 22]); // pixels: the margin, where a loss begins, and a nat
  const [across, down] = stage.fit([42, 22], [21, 24]); // a cell of a map
  const lanes = stage.fit( // the middle of a title, and the corner of a map
    [{ y: 62, top: 52, edge: 426 }, { y: 172, top: 212, edge: 426 }],
    [{ y: 44, top: 380, edge: 56 }, { y: 130, top: 380, edge: 220 }],
  );
  let bug = bugs[0]; // null: all is right
  let step = 0;
  let looked = null; // the token whose row is pointed at
  const own = () => bug ?? right;

  svg(stage.svg, "text", { x: left, y: 20, class: "start code", style: "font-size: 15px" }, tokens.join(""));
  svg(stage.svg, "text", { x: left + 232, y: 20, class: "start muted" }, "…");
  const drawn = lanes.map(({ y, top, edge }, lane) => {
    const colour = lane ? "var(--wrong)" : "var(--weight)";
    const group = svg(stage.svg, "g");
    const title = svg(group, "text", { x: left, y, class: "start strong" });
    const chips = right.written.map(() => {
      const chip = svg(group, "g");
      svg(chip, "rect", { y: y + 16, height: 26, rx: 5, fill: colour, "fill-opacity": 0.14, stroke: colour });
      svg(chip, "text", { y: y + 29, class: "start code" });
      return chip;
    });
    svg(group, "text", { x: left, y: y + 64, class: "start small muted" }, "loss");
    svg(group, "rect", { x: zero, y: y + 57, width: guess * unit, height: 14, rx: 3, fill: "var(--panel)" });
    const bar = svg(group, "rect", { x: zero, y: y + 57, height: 14, rx: 3, fill: colour, "fill-opacity": 0.75 });
    const mark = svg(group, "line", { y1: y + 54, y2: y + 74, stroke: "var(--text)", "stroke-width": 1.5, "stroke-dasharray": "3 2" });
    const loss = svg(group, "text", { x: zero + guess * unit + 8, y: y + 64, class: "start strong" });
    svg(group, "text", { x: edge + (T * across) / 2, y: top - stage.fit(31, 62), class: "small strong" }, lane ? stage.fit("the same head now", "the same, now") : `what head ${head} reads`);
    words.forEach((word, at) => {
      const name = svg(group, "text", { class: `small muted ${stage.fit("", "start")}` }, word);
      set(name, { transform: `translate(${edge + across * (at + 0.5)} ${top - stage.fit(11, 5)})${stage.fit("", "rotate(-90)")}` });
      svg(group, "text", { x: edge - 6, y: top + down * (at + 0.5), class: "small muted end" }, word);
    });
    svg(group, "rect", { x: edge, y: top, width: T * across, height: T * down, fill: "var(--panel)" });
    const cells = Array.from({ length: T * T }, (_, at) =>
      svg(group, "rect", {
        x: edge + across * (at % T) + 1, y: top + down * Math.floor(at / T) + 1, width: across - 2, height: down - 2, rx: 2, fill: "var(--weight)",
      }),
    );
    return { group, title, chips, bar, mark, loss, cells };
  });
  const even = zero + guess * unit;
  svg(stage.svg, "line", { x1: even, x2: even, y1: lanes[1].y + 54, y2: lanes[1].y + 78, stroke: "var(--muted)" });
  svg(stage.svg, "text", { x: even, y: lanes[1].y + 87, class: "small muted end" }, `${guess.toFixed(1)}: a blind guess`);
  const code = Array.from({ length: 3 }, (_, row) => svg(stage.svg, "text", { x: left, y: stage.fit(310, 254) + stage.fit(22, 19) * row, class: "start code", style: `font-size: ${stage.fit(13, 11)}px` }));
  const heading = svg(stage.svg, "text", { x: left, y: stage.fit(288, 234), class: "start small muted" });
  const rows = words.map((word, query) => {
    const row = svg(stage.svg, "g");
    const frames = lanes.map(({ top, edge }) =>
      svg(row, "rect", { x: edge, y: top + down * query, width: T * across, height: down, rx: 3, fill: "transparent", stroke: "var(--query)", "stroke-width": 2.5, "stroke-opacity": 0 }),
    );
    stage.point(row, query, `what “${word}” reads`, (key) => {
      looked = key;
      tell();
    });
    return frames;
  });

  stage.paint = ({ typed, losses, weights, swapped }) => {
    drawn.forEach(({ group, chips, bar, mark, loss, cells }, lane) => {
      set(group, { opacity: lane ? 0.25 + 0.75 * swapped : 1 });
      chips.forEach((chip, at) => set(chip, { opacity: Math.max(0, Math.min(1, typed[lane] - at)) }));
      set(bar, { width: unit * losses[lane], opacity: lane ? swapped : 1 });
      set(mark, { x1: zero + unit * losses[0], x2: zero + unit * losses[0], opacity: lane });
      loss.textContent = lane && !swapped ? "?" : losses[lane].toFixed(2);
      cells.forEach((cell, at) => set(cell, { opacity: weights[lane][at] }));
    });
  };

  // Write the tokens into the chips of a lane, each as wide as its letters.
  const fill = (lane, written) => {
    let x = left;
    drawn[lane].chips.forEach((chip, at) => {
      const token = visible(written[at]);
      const width = 12 + 8.2 * Math.max(1, token.length);
      set(chip.firstChild, { x, width });
      set(chip.lastChild, { x: x + 6 });
      chip.lastChild.textContent = token || "␣";
      x += width + 5;
    });
  };

  const most = (weights, query) => {
    const row = shares(weights).slice(T * query, T * (query + 1));
    const key = row.indexOf(Math.max(...row));
    return `${percent(row[key])} on ${key === query ? "itself" : `“${words[key]}”`}`;
  };
  const quoted = ({ written }) => `“${written.join("").replaceAll("\n", "↵").trim()}”`;
  const swapped = () => step >= SWAP && bug !== null;

  // What is said at a step with a bug, or with none.
  function told(bug, step) {
    if (!step) return "SmolLM2, and in each of its 30 layers an attention of your own. What does it write next?";
    if (step < SWAP || !bug) return `With the right attention it goes on with ${quoted(right)}. Its loss on a text that it has never seen is ${right.loss.toFixed(2)} nats per token.`;
    const way = bug.loss < right.loss ? "falls" : "rises";
    return `${bug.says} The loss ${way} from ${right.loss.toFixed(2)} to ${bug.loss.toFixed(2)}${step < LAST ? "." : `, and it writes ${quoted(bug)}.`}`;
  }

  function tell() {
    rows.forEach((frames, query) => frames.forEach((frame) => set(frame, { "stroke-opacity": Number(query === looked) })));
    if (looked === null) return stage.say(told(bug, step));
    const wrong = swapped() ? ` With “${bug.name}” it has ${most(bug.weights, looked)}.` : "";
    return stage.say(`With the right attention, “${words[looked]}” has most weight here, ${most(right.weights, looked)}.${wrong}`);
  }

  function update() {
    const typed = [Math.min(step, many), swapped() ? step - SWAP : 0];
    const shown = swapped() ? bug : right;
    const changed = own().code.filter(([sign]) => sign !== " ");
    fill(0, right.written);
    fill(1, own().written);
    drawn[0].title.textContent = "with the right attention";
    drawn[1].title.textContent = bug ? `with “${bug.name}”` : "put in a wrong line";
    const has = (mark) => changed.some(([sign]) => sign === mark);
    const marks = !has("+") ? "the line that is missing (−)" : has("−") ? "the right line (−), and the wrong one (+)" : "the line that shouldn't be there (+)";
    heading.textContent = swapped() ? marks : "";
    code.forEach((node, row) => {
      const [sign, line] = (swapped() && changed[row]) || ["", ""];
      node.textContent = sign ? `${sign} ${line}` : "";
      node.style.fill = sign === "−" ? "var(--weight)" : "var(--wrong)";
    });
    choose(bugs.indexOf(bug));
    tell();
    stage.publish({ step, name: own().name, typed, losses: [right.loss, shown.loss], weights: [shares(right.weights), shares(shown.weights)] });
    return stage.show({ typed, losses: [right.loss, shown.loss], weights: [shares(right.weights), shares(shown.weights)], swapped: Number(swapped()) });
  }

  const player = stage.player(LAST, (next) => {
    step = next;
    return update();
  }, 350);
  const play = stage.play;
  stage.play = () => { // with room for the longest words from the start, so that the picture stays where it is
    for (const each of bugs) stage.say(told(each, LAST));
    tell();
    return play();
  };
  const put = async (wrong) => {
    player.stop();
    bug = wrong;
    await player.to(bug ? SWAP : LAST);
    if (bug && bug === wrong && step === SWAP) stage.play(); // nothing else was pressed meanwhile
  };
  const choose = stage.choices("Wrong line", bugs.map((each) => each.name), (at) => put(bugs[at] ?? null));
  update();
}
