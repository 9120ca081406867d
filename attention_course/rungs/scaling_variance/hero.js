// Rung {scaling_variance}: drag the bell of scores wider by head_size, see softmax collapse and its derivatives vanish, and divide.

// The norm of the matrix of derivatives of softmax, diag(p) − p pᵀ, for the weights p.
function sizeOfDerivatives(p) {
  return Math.hypot(...p.flatMap((a, i) => p.map((b, j) => (i === j ? a : 0) - a * b)));
}

function play(stage, { head_sizes, pairs, bin, counts, scores }) {
  const [middle, ground, unit, edge, grip] = stage.fit([320, 200, 7.75, 40, 74], [164, 176, 4, 40, 84]); // the bell: pixels for a score of 1, the last score; the handle
  const peak = stage.fit(78, 66); // pixels; kept for every head_size, so that the bell widens and does not sink
  const [floor, tall, pitch, size] = stage.fit([404, 130, 49, 8], [324, 90, 41, 8]); // the bars of weights, the radius of a key
  const [hub, hubY, radius, full] = stage.fit([536, 392, 80, 0.5], [252, 440, 62, 0.5]); // the meter, and the largest norm that any weights have
  const low = full / 10; // below it, the words say that the weights hardly move
  const x = (score) => middle + unit * score;
  const bar = (key) => stage.fit(34, 20.5) + pitch * key;
  const deviations = counts[0].map((_, i) => (i - (counts[0].length - 1) / 2) * bin); // the middle of each bin
  const keys = scores[0].map((_, key) => key);
  let at = 4; // which of the head sizes
  let divided = false;
  let looked = null; // the key that is pointed at

  // Keys with nearly the same score stand on top of each other: how many stand below each.
  const stack = (scores) => scores.reduce((levels, score) => {
    const near = levels.filter((_, other) => Math.abs(scores[other] - score) * unit < 2 * size);
    return [...levels, keys.find((level) => !near.includes(level))];
  }, []);
  const deviation = () => Math.sqrt(head_sizes[at]);
  const factor = () => (divided ? 1 / deviation() : 1);
  const scaled = () => scores[at].map((score) => score * factor());

  // Painted from back to front.
  const frame = svg(stage.svg, "clipPath", { id: "bell-frame" });
  svg(frame, "rect", { x: x(-edge), y: 0, width: 2 * unit * edge, height: ground });
  const bell = svg(stage.svg, "g", { "clip-path": "url(#bell-frame)" });
  const bins = counts[0].map(() => svg(bell, "rect", { fill: "var(--second)", opacity: 0.8 }));
  const dashed = { fill: "none", stroke: "var(--text)", "stroke-width": 1.5, "stroke-dasharray": "5 4" };
  const [undivided, theory] = [0.55, 1].map((opacity) => svg(bell, "polyline", { ...dashed, opacity }));
  svg(stage.svg, "line", { x1: x(-edge), x2: x(edge), y1: ground, y2: ground, stroke: "var(--muted)" });
  const beams = keys.map(() => svg(stage.svg, "path", { fill: "none", stroke: "var(--weight)", "stroke-linecap": "round" }));
  for (const score of [-30, -20, -10, 0, 10, 20, 30]) {
    svg(stage.svg, "text", { x: x(score), y: ground + 19, class: "small muted halo" }, number(score));
  }
  svg(stage.svg, "text", { x: stage.fit(10, 2), y: stage.fit(16, 10), class: "start" }, `${pairs.toLocaleString("en")} scores of random queries and keys`);
  const [prediction, legend] = stage.fit([35, 54], [ground + 38, ground + 55]).map((y) => svg(stage.svg, "text", { x: stage.fit(10, 326), y, class: `${stage.fit("start", "end halo")} small muted` }));
  legend.textContent = "circles: the 8 keys of a typical query";
  svg(stage.svg, "text", { x: stage.fit(10, 2), y: stage.fit(247, ground + 38), class: "start" }, "softmax ↓");

  const mirror = svg(stage.svg, "path", { stroke: "var(--muted)" });
  const circles = keys.map((key) => {
    const circle = svg(stage.svg, "g");
    svg(circle, "circle", { r: size, stroke: "var(--key)", "stroke-width": 2, fill: "var(--paper)" });
    svg(circle, "text", { class: "small" }, key);
    return circle;
  });
  svg(stage.svg, "line", { x1: bar(0) - stage.fit(24, 20), x2: bar(7) + stage.fit(24, 20), y1: floor, y2: floor, stroke: "var(--muted)" });
  const ghosts = keys.map((key) => svg(stage.svg, "rect", { x: bar(key) - 15, width: 30, fill: "none", stroke: "var(--faint)" }));
  const columns = keys.map((key) => {
    const column = svg(stage.svg, "g");
    svg(column, "rect", { x: bar(key) - stage.fit(44, pitch) / 2, y: floor - tall, width: stage.fit(44, pitch), height: tall + 40, fill: "transparent" });
    svg(column, "rect", { x: bar(key) - 15, width: 30, fill: "var(--weight)" });
    svg(column, "text", { x: bar(key), y: floor + 13, class: "small" });
    svg(column, "text", { x: bar(key), y: floor + 31, class: "small muted" }, `key ${key}`);
    stage.point(column, key, `key ${key}`, (found) => {
      looked = found;
      stage.paint(stage.shown, stage.before);
      describe();
    });
    return column;
  });

  // The meter: a half circle from 0 to `full`, filled up to the needle.
  const onArc = (norm, r) => {
    const angle = Math.PI * (1 - norm / full);
    return `${hub + r * Math.cos(angle)} ${hubY - r * Math.sin(angle)}`;
  };
  const arc = (norm) => `M${onArc(0, radius)} A${radius} ${radius} 0 0 1 ${onArc(norm, radius)}`;
  svg(stage.svg, "path", { d: arc(full), fill: "none", stroke: "var(--faint)", "stroke-width": 12 });
  const filled = svg(stage.svg, "path", { fill: "none", stroke: "var(--weight)", "stroke-width": 12 });
  const needle = svg(stage.svg, "path", { stroke: "var(--text)", "stroke-width": 3, "stroke-linecap": "round" });
  svg(stage.svg, "circle", { cx: hub, cy: hubY, r: 5, fill: "var(--text)" });
  const question = ["If the scores move a little,", "how far do the weights move?"];
  const asks = stage.fit([hub, hubY - radius - 42, "small"], [4, hubY - 46, "small start"]);
  question.forEach((words, at) => svg(stage.svg, "text", { x: asks[0], y: asks[1] + 19 * at, class: asks[2] }, words));
  [0, full].forEach((end, at) => svg(stage.svg, "text", { x: hub + radius * (2 * at - 1), y: hubY + 13, class: "small muted" }, end));
  const reading = svg(stage.svg, "text", { x: hub, y: hubY + 27 });

  const handle = svg(stage.svg, "g");
  svg(handle, "line", { y1: grip + 14, y2: ground, stroke: "var(--text)" });
  if (stage.narrow) svg(handle, "circle", { cy: grip, r: 22, fill: "transparent" });
  svg(handle, "circle", { cy: grip, r: 14, fill: "var(--panel)", stroke: "var(--text)" });
  svg(handle, "path", { d: `M-8 ${grip}h16m-4 -4l4 4l-4 4m-8 0l-4 -4l4 -4`, fill: "none", stroke: "var(--text)", "stroke-width": 1.5 });
  const label = svg(stage.svg, "g");
  const setting = svg(label, "text", { y: stage.fit(26, 34), class: "start strong code" });
  svg(label, "text", { y: stage.fit(46, 52), class: "start small" }, "numbers in a query and in a key");

  stage.paint = ({ wide, shown, heights, scores, levels, weights, norm }, before) => {
    const bellOf = (width) => deviations.map((z) => `${x(z * width)},${ground - peak * Math.exp((-z * z) / 2)}`).join(" ");
    heights.forEach((height, i) => set(bins[i], {
      x: x((deviations[i] - bin / 2) * shown), width: bin * shown * unit - 0.4, y: ground - height, height,
    }));
    set(undivided, { points: bellOf(wide) });
    set(theory, { points: bellOf(shown) });
    set(handle, { transform: `translate(${x(2 * wide)} 0)` });
    set(label, { transform: `translate(${Math.max(2, Math.min(x(2 * wide) - 6, stage.width - stage.fit(222, 214)))} 0)` });
    set(mirror, { d: `M${x(-2 * wide)} ${grip + 14}V${ground}` });
    keys.forEach((key) => {
      const [from, to, top] = [x(scores[key]), bar(key), floor - tall * weights[key]];
      const start = ground - size * (1 + 2 * levels[key]);
      set(circles[key], { transform: `translate(${from} ${start})` });
      set(circles[key].firstChild, { "stroke-width": looked === key ? 4 : 2 });
      set(beams[key], {
        d: `M${from} ${start} V${ground} C${from} ${ground + 60} ${to} ${ground + 20} ${to} ${Math.min(top, ground + stage.fit(100, 80))} V${top}`,
        "stroke-width": 1 + 7 * weights[key],
        opacity: looked === key ? 0.9 : looked === null ? 0.15 + 0.35 * weights[key] : 0.08,
      });
      set(columns[key].children[1], { y: top, height: tall * weights[key], opacity: looked === null || looked === key ? 1 : 0.4 });
      set(ghosts[key], { y: floor - tall * before.weights[key], height: tall * before.weights[key] });
      columns[key].children[2].textContent = weights[key].toFixed(2);
    });
    set(filled, { d: arc(norm) });
    set(needle, { d: `M${hub} ${hubY} L${onArc(norm, radius - 14)}` });
  };

  const describe = () => {
    const { weights, norm } = stage.state;
    const [size, root] = [head_sizes[at], number(deviation(), 1)];
    if (looked !== null) {
      const score = number(scores[at][looked], 1);
      const what = divided ? `${score} ÷ ${root} = ${scaled()[looked].toFixed(1).replace("-", "−")}` : score;
      return stage.say(`Key ${looked}: score ${what}, weight ${weights[looked].toFixed(2)}.`);
    }
    const most = Math.max(...weights);
    const wide = `most scores lie within ±${number(2 * deviation() * factor(), 1)}`;
    const winner = `key ${weights.indexOf(most)} gets ${most.toFixed(2)} of the weight`;
    if (divided) return stage.say(`Every score ÷ ${root}: ${wide}, whatever head_size is, and ${winner}. The weights follow the scores.`);
    const follow =
      norm < low
        ? "The needle is in the lowest tenth: almost no gradient gets through this row. Press ÷ √head_size."
        : "Drag ↔ to the right for more numbers, or press Play.";
    stage.say(`A query of ${size} ${size === 1 ? "number" : "numbers"}: ${wide}, and ${winner}. ${follow}`);
  };

  const update = () => {
    const [row, weights] = [scaled(), softmax(scaled())];
    const norm = sizeOfDerivatives(weights);
    const heights = counts[at].map((count) => (peak * count * Math.sqrt(2 * Math.PI)) / (pairs * bin));
    setting.textContent = `head_size = ${head_sizes[at]}`;
    prediction.textContent = divided ? "dashed: bells of width √head_size and 1" : "dashed: a bell of width √head_size";
    reading.textContent = norm.toFixed(3);
    stage.publish({ head_size: head_sizes[at], divided, scores: row, weights, norm });
    const width = { wide: deviation(), shown: deviation() * factor() };
    const arrived = stage.show({ ...width, heights, scores: row, levels: stack(row), weights, norm });
    describe();
    return arrived;
  };

  const player = stage.player(head_sizes.length - 1, (step) => {
    at = step;
    return update();
  });
  stage.toggle("÷ √head_size", false, (on) => {
    divided = on;
    update();
  });
  stage.drag(handle, "head_size", {
    at: () => [x(2 * deviation()), grip],
    move: (px) => {
      const wanted = Math.log2(Math.max(0.5, (px - middle) / unit / 2)) * 2; // the edge is at 2 √head_size
      player.stop();
      player.to(Math.max(0, Math.min(head_sizes.length - 1, Math.round(wanted))));
    },
    tell: () => String(head_sizes[at]),
    step: () => 0.35 * 2 * unit * deviation(), // to a head_size twice or half as large
  });
  player.to(at);
}
