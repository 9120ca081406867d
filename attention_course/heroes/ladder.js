// The destination, in front of rung {bag_of_words}: the rungs of the course, and the GPT of rung {bigram_to_gpt} while it learns to write.

const GPT = {bigram_to_gpt};
const GROUND = 302; // y of the place where the reader stands
const TOP = 16; // y of the last rung

// What a loss means, by the lowest line that it is below.
const FLOORS = [
  ["nothing", "guesses: all letters alike", "it does better than a guess: it begins to notice which letters are common"],
  ["1-gram", "knows which letters are common", "it has noticed which letters are common"],
  ["2-gram", "knows what follows a letter", "it does better than anyone who sees one letter back"],
  ["3-gram", "knows what follows two", "it does better than anyone who sees two letters back"],
  ["grammar", "no one can do better", "it knows all that can be known"],
];


// Lines of words and of what is between them; a word goes to the next line whole, if it has room there.
function wrap(text, columns, most) {
  const lines = [[]];
  let column = 0;
  for (const piece of text.match(/[A-Za-z]+[.?]?|\n|[^A-Za-z\n]/g) ?? []) {
    if (piece === "\n" || column + piece.length > columns) {
      lines.push([]);
      column = 0;
    }
    if (piece === "\n" || (column === 0 && piece === " ")) continue;
    lines.at(-1).push(piece);
    column += piece.length;
  }
  return lines.slice(0, most);
}

// On a phone it is a table of two columns below the curve, as high as fingers need it.
function tabulate(stage, rungs, tell, top) {
  const half = Math.ceil(rungs.length / 2);
  rungs.forEach(({ title }, at) => {
    const [x, y] = [164 * Math.floor(at / half), top + 45 * (at % half)];
    const rung = svg(stage.svg, "g");
    const here = at === 0;
    svg(rung, "rect", { x: x + 1, y, width: 161, height: 44, rx: 5, fill: "transparent", stroke: here ? "var(--query)" : "var(--faint)", "stroke-width": here ? 3 : 1 });
    svg(rung, "text", { x: x + 10, y: y + (here ? 15 : 22), class: `start ${here ? "strong" : ""}` }, `${at + 1}  ${title}`);
    if (here) svg(rung, "text", { x: x + 10, y: y + 32, class: "start small strong", style: "fill: var(--query)" }, "you stand here");
    if (at + 1 === GPT) svg(rung, "path", { d: `M ${x + 146} ${y + 31} v -18 l 12 4 l -12 5`, fill: "none", stroke: "var(--text)", "stroke-width": 1.5 }); // the goal
    stage.point(rung, at + 1, `rung ${at + 1}, ${title}`, tell);
  });
}

function drawLadder(stage, rungs, tell) {
  const pitch = (GROUND - TOP) / rungs.length;
  const y = (number) => GROUND - pitch * number;
  const rail = (number, side) => 105 + side * (96 - (17.6 * number) / rungs.length); // the rails lean towards each other
  const end = rungs.length + 0.6;
  for (const side of [-1, 1]) {
    svg(stage.svg, "line", { x1: rail(0, side), y1: y(0) + 6, x2: rail(end, side), y2: y(end) + 6, stroke: "var(--faint)", "stroke-width": 5, "stroke-linecap": "round" });
  }
  rungs.forEach(({ title }, at) => {
    const number = at + 1;
    const here = number === 1;
    const rung = svg(stage.svg, "g");
    svg(rung, "rect", { x: rail(number, -1), y: y(number) - 13, width: 2 * (rail(number, 1) - 105), height: 24, fill: "transparent" });
    svg(rung, "line", {
      x1: rail(number, -1), x2: rail(number, 1), y1: y(number) + 11, y2: y(number) + 11, "stroke-width": here ? 5 : 3,
      stroke: here ? "var(--query)" : "var(--faint)",
    });
    svg(rung, "text", { x: 105, y: y(number), class: here ? "strong" : "" }, `${number}  ${title}`);
    if (number === GPT) svg(rung, "path", { d: `M 156 ${y(GPT) + 9} v -18 l 12 4 l -12 5`, fill: "none", stroke: "var(--text)", "stroke-width": 1.5 }); // the goal
    stage.point(rung, number, `rung ${number}, ${title}`, tell);
  });
  svg(stage.svg, "text", { x: 105, y: y(0) + 2, class: "strong", style: "fill: var(--query)" }, "▲ you stand here");
}

function play(stage, { rungs, floors, words, moments }) {
  const [left, right, top, bottom, highest] = stage.fit([270, 626, 30, 284, 4.2], [26, 314, 28, 186, 4.2]);
  const [sheet, columns, rows] = stage.fit([334, 76, 4], [232, 40, 4]); // where the sample stands, the characters in a line of it, and its lines
  const draw = stage.fit(drawLadder, tabulate);
  const gap = (right - left) / (moments.length - 1);
  const x = (at) => left + gap * at;
  const y = (loss) => bottom - ((bottom - top) * loss) / highest;
  const inside = (at) => Math.max(0, Math.min(moments.length - 1, Math.round(at)));
  const known = new Set(words);
  const isWord = (piece) => known.has(piece.replace(/[.?]$/, ""));
  let now = 0; // which of the moments

  draw(stage, rungs, (number) => {
    if (number) stage.say(`Rung ${number}, ${rungs[number - 1].title}: ${rungs[number - 1].sentence}.`);
    else describe();
  }, sheet + 100);

  svg(stage.svg, "text", { x: left - stage.fit(12, 24), y: stage.fit(12, 10), class: `start ${stage.fit("", "small")}` }, "surprise of rung {bigram_to_gpt} at the next letter: low is good");
  svg(stage.svg, "path", { d: `M ${left} ${top} V ${bottom} H ${right}`, fill: "none", stroke: "var(--faint)" });
  for (const loss of [0, 1, 2, 3, 4]) svg(stage.svg, "text", { x: left - stage.fit(12, 8), y: y(loss), class: "small muted end" }, number(loss));
  moments.forEach(({ step }, at) => {
    if (![0, 10, 30, 80, 160, 250, 450].includes(step)) return;
    svg(stage.svg, "line", { x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4, stroke: "var(--faint)" });
    svg(stage.svg, "text", { x: x(at), y: bottom + 13, class: "small muted" }, number(step));
  });
  svg(stage.svg, "text", { x: (left + right) / 2, y: bottom + stage.fit(30, 29), class: "small" }, `steps of practice${stage.fit(" (more room where most happens)", "")}`);
  const labels = FLOORS.map(([name, label]) => {
    const level = y(floors[name]);
    svg(stage.svg, "line", { x1: left, x2: right, y1: level, y2: level, stroke: "var(--text)", "stroke-dasharray": "5 5", opacity: 0.6 });
    const low = name === "grammar"; // the curve ends just above this one
    return svg(stage.svg, "text", { x: low ? left + stage.fit(6, 1) : right, y: level - 9, class: `small ${low ? "start" : "end"}` }, label);
  });
  const path = (from, to) => moments.slice(from, to).map(({ loss }, at) => `${x(from + at)},${y(loss)}`).join(" ");
  svg(stage.svg, "polyline", { points: path(0), fill: "none", stroke: "var(--faint)", "stroke-width": 2 });
  const done = svg(stage.svg, "polyline", { fill: "none", stroke: "var(--weight)", "stroke-width": 3, "stroke-linejoin": "round" });

  svg(stage.svg, "rect", { x: stage.fit(4, 0), y: sheet, width: stage.fit(632, 328), height: 92, rx: 6, fill: "var(--panel)" });
  const title = svg(stage.svg, "text", { x: stage.fit(14, 6), y: sheet + 12, class: "start small muted" });
  const lines = Array.from({ length: rows }, (_, line) => svg(stage.svg, "text", { x: stage.fit(14, 6), y: sheet + 30 + 17 * line, class: "start code" }));

  const loss = (at) => between(moments[Math.floor(at)].loss, moments[Math.ceil(at)].loss, at % 1);
  const ghost = svg(stage.svg, "circle", { r: 8, fill: "none", stroke: "var(--query)", "stroke-dasharray": "2 3" });
  const handle = svg(stage.svg, "g");
  svg(handle, "circle", { r: stage.fit(14, 22), fill: "transparent" });
  svg(handle, "circle", { r: 8, fill: "var(--paper)", stroke: "var(--query)", "stroke-width": 4 });

  stage.paint = ({ at }, before) => {
    set(handle, { transform: `translate(${x(at)} ${y(loss(at))})` });
    set(ghost, { cx: x(before.at), cy: y(loss(before.at)) });
    set(done, { points: `${path(0, Math.floor(at) + 1)} ${x(at)},${y(loss(at))}` });
  };

  const write = (text) => {
    const wrapped = wrap(text, columns, rows);
    lines.forEach((line, row) => {
      line.replaceChildren();
      for (const piece of wrapped[row] ?? []) {
        svg(line, "tspan", isWord(piece) ? { fill: "var(--weight)", "font-weight": 600 } : {}, piece);
      }
    });
    const pieces = wrapped.flat().filter((piece) => /[A-Za-z]/.test(piece));
    return [pieces.filter(isWord).length, pieces.length];
  };

  const describe = () => {
    const { step, loss, text, told } = moments[now];
    const [real, all] = write(text);
    const passed = FLOORS.filter(([name]) => loss < floors[name]);
    labels.forEach((label, at) => label.classList.toggle("strong", at < passed.length));
    title.textContent = `written after ${step} steps`;
    const learned = passed.length ? passed.at(-1)[2] : "so far it prefers letters at random, which is worse than guessing evenly";
    const stories = told ? ` ${told === 1 ? "One story is" : `${told} stories are`} without a mistake.` : "";
    stage.say(`After ${step} steps: ${real} of ${all} words are real.${stories} Surprise (its name is loss) ${number(loss)}: ${learned}.`);
    stage.publish({ step, loss, told, text: lines.map((line) => line.textContent), real, all, passed: passed.map(([name]) => name) });
  };

  const go = (at, ms) => {
    now = at;
    describe();
    return stage.show({ at }, ms);
  };
  const player = stage.player(moments.length - 1, (at) => go(at), 250);
  stage.drag(handle, "the moment of the practice", {
    at: () => [x(now), y(moments[now].loss)],
    move: (px) => {
      player.stop();
      player.to(inside((px - left) / gap));
    },
    tell: () => `after ${moments[now].step} steps`,
    step: gap,
  });
  go(0, 0);
  stage.say("Untrained, rung {bigram_to_gpt} prefers letters at random: that is worse than guessing evenly. Drag the ring down the curve by mouse, finger or arrow keys, press Play, or point at a rung.");
}
