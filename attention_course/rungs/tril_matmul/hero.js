// Rung {tril_matmul}: a row of weights turns onto the tokens, and each token pours its share into one output.

function play(stage, { tokens, limit, recipes }) {
  const [top, pitch, stride, cell, bar, unit] = stage.fit([56, 48, 43, 38, 26, 14], [48, 44, 40, 36, 26, 8.5]); // rows, columns, bars; pixels for a value of 1
  const [home, slot, source, sink] = stage.fit([26, 259, 321, 482], [18, 22, 84, 232]); // left edges: the matrix, the turned row, tokens, outputs
  const low = stage.fit(top, 302); // the first token: beside the matrix, or below it
  const positions = tokens.map((_, at) => at);
  const values = [...tokens];
  let recipe = recipes[0];
  let row = -1; // the row whose turn it is; those above it are done
  let poured = 0; // how many of its tokens have poured
  let looked = null; // the weight pointed at: its row t and its token s
  let ghost = null; // the outputs before the last change
  let walk = 0; // counts the walks over a row, so that a new one ends the old

  const middle = (at, first = top) => first + pitch * at + cell / 2;
  const weights = () => recipe.takes.map((takes) => takes.map((take) => take / Math.max(1, sum(takes))));
  const outputs = () => weights().map((weight) => dot(weight, values));
  const fraction = (t, s) => (recipe.takes[t][s] && sum(recipe.takes[t]) > 1 ? `${recipe.takes[t][s]}/${sum(recipe.takes[t])}` : String(recipe.takes[t][s]));
  const turned = () => looked?.t ?? row;
  const arrived = (t, s) => t < row || t === looked?.t || (t === row && s < poured);
  const complete = (t) => positions.every((s) => arrived(t, s));

  // Painted from back to front.
  const text = (x, y, words, look = "") => svg(stage.svg, "text", { x, y, class: look }, words);
  text(home + (tokens.length * stride) / 2, 14, "weights", "strong");
  text(source - 16, stage.fit(14, low - 16), "× tokens", "strong start");
  text(source + stage.fit(0, 66), low - stage.fit(18, 16), "each is one number here", "small muted start");
  text(sink - 16, 14, "= outputs", "strong start");
  const heading = text(slot + cell / 2, stage.fit(14, low - 16), "", "strong");
  heading.style.fill = "var(--query)";
  for (const at of positions) {
    text(home + stride * at + cell / 2, top - 18, at, "small muted");
    text(home - stage.fit(14, 12), middle(at), at, "small muted");
    text(source - 12, middle(at, low), at, "small muted");
  }
  const frame = (x, width) => svg(stage.svg, "rect", { x, width, height: cell + 8, rx: 7, fill: "none", stroke: "var(--query)", "stroke-width": 2 });
  const frames = [frame(home - 4, tokens.length * stride + 3), frame(sink - stage.fit(22, 8), stage.width - sink + stage.fit(20, 7))];
  const bars = positions.map((s) => {
    const node = svg(stage.svg, "g");
    const y = middle(s, low);
    const whole = svg(node, "rect", { x: source, y: y - bar / 2, height: bar, fill: "var(--mix)", opacity: 0.3 });
    const share = svg(node, "rect", { x: source, y: y - bar / 2, height: bar, fill: "var(--mix)" });
    const touch = stage.fit([14, bar + 6], [44, 44]); // a place to take hold of the edge
    const grip = svg(node, "rect", { y: y - touch[1] / 2, width: touch[0], height: touch[1], fill: "transparent" });
    const edge = svg(node, "rect", { y: y - bar / 2 - 3, width: 4, height: bar + 6, rx: 2, fill: "var(--mix)" });
    const label = svg(node, "text", { y, class: "start" });
    node.addEventListener("pointerdown", remember);
    node.addEventListener("focus", remember);
    stage.drag(node, `token ${s}`, {
      at: () => [source + unit * values[s], y],
      move: (x) => {
        values[s] = Math.max(0, Math.min(limit, Math.round((x - source) / unit)));
        update(0);
      },
      tell: () => String(values[s]),
      step: unit,
    });
    return { whole, share, grip, edge, label };
  });
  const dashed = { fill: "none", stroke: "var(--muted)", "stroke-dasharray": "3 3" };
  const shadows = positions.map((t) => svg(stage.svg, "rect", { ...dashed, x: sink, y: middle(t) - bar / 2, height: bar }));
  const each = (paint) => positions.map((t) => positions.map((s) => paint(t, s)));
  const green = { fill: "var(--mix)", stroke: "var(--paper)" };
  const pieces = each(() => svg(stage.svg, "rect", { ...green, class: "piece", height: bar, "pointer-events": "none" }));
  const results = positions.map((t) => svg(stage.svg, "text", { y: middle(t) }));
  const square = (parent, attributes) => svg(parent, "rect", { width: cell, height: cell, rx: 5, fill: "var(--weight)", ...attributes });
  const cells = each((t, s) => {
    const [x, y] = [home + stride * s, top + pitch * t];
    const node = svg(stage.svg, "g");
    svg(node, "rect", { x, y, width: stride, height: pitch, fill: "transparent" }); // no gaps to fall into
    const fill = square(node, { x, y });
    const label = svg(node, "text", { x: x + cell / 2, y: y + cell / 2 });
    stage.point(node, { t, s }, `weight of token ${s} in row ${t}`, (at) => {
      looked = at;
      update();
    });
    return { fill, label };
  });
  // Copies of the weights: at home over the originals, or in a column beside the tokens.
  const copies = each(() => {
    const node = svg(stage.svg, "g", { "pointer-events": "none" });
    square(node, { fill: "var(--paper)" });
    return { node, fill: square(node, {}), label: svg(node, "text", { x: cell / 2, y: cell / 2 }) };
  });

  stage.paint = ({ values, weights, places, shares, flights, framed, lengths }) => {
    bars.forEach(({ whole, share, grip, edge, label }, s) => {
      const end = source + unit * values[s];
      whole.setAttribute("width", unit * values[s]);
      share.setAttribute("width", unit * shares[s]);
      grip.setAttribute("x", end - grip.getAttribute("width") / 2);
      edge.setAttribute("x", end - 2);
      set(label, { x: end + 9 });
      label.textContent = number(Math.round(values[s]));
    });
    each((t, s) => {
      const { x, y, length, opacity } = flights[t][s];
      set(pieces[t][s], { x, y, width: unit * length, opacity });
      const here = turned() === t && s === (looked ? looked.s : complete(t) ? -1 : poured - 1);
      const { node, fill, label } = copies[t][s];
      node.setAttribute("transform", `translate(${places[t][s].join(" ")})`);
      for (const look of [cells[t][s], { fill }]) set(look.fill, { "stroke-width": 2, stroke: here ? "var(--query)" : "none" });
      for (const look of [cells[t][s], { fill, label }]) {
        set(look.fill, { "fill-opacity": 0.05 + 0.5 * weights[t][s] });
        set(look.label, { class: weights[t][s] ? "" : "muted" });
        look.label.textContent = fraction(t, s);
      }
    });
    for (const frame of frames) set(frame, { y: framed, visibility: turned() < 0 ? "hidden" : "visible" });
    heading.textContent = turned() < 0 ? "" : `row ${turned()}`;
    results.forEach((result, t) => {
      const done = complete(t);
      set(result, { x: sink + (done ? unit * Math.max(lengths[t], ghost?.[t] ?? 0) + 6 : 0), class: done ? "start strong" : "start muted" });
      result.textContent = done ? number(outputs()[t]) : t === turned() ? "" : "?";
    });
    shadows.forEach((shadow, t) => {
      const moved = ghost && complete(t) && ghost[t] !== outputs()[t];
      set(shadow, { width: moved ? unit * ghost[t] : 0, visibility: moved ? "visible" : "hidden" });
    });
  };

  const terms = (t, many) => {
    const used = positions.filter((s) => s < many && recipe.takes[t][s]);
    return used.map((s) => `${fraction(t, s)} × ${values[s]}`).join(" + ");
  };
  const total = (t) => {
    const all = terms(t, tokens.length);
    return all ? `Output ${t} = ${all} = ${number(outputs()[t])}.` : `Output ${t} = 0, because row ${t} takes nothing.`;
  };
  const words = () => {
    if (looked) {
      const { t, s } = looked;
      if (!recipe.takes[t][s]) return `${total(t)} The weight of token ${s} is 0, so it pours nothing into output ${t}.`;
      return `${total(t)} Token ${s} pours ${fraction(t, s)} × ${values[s]} = ${number(weights()[t][s] * values[s])} into it.`;
    }
    if (row < 0) return "Press Play, and row by row each weight takes its share of a token. You can also point at a weight, or drag the end of a token.";
    if (!complete(row)) return `Output ${row} = ${terms(row, poured) || "…"}`;
    return total(row) + (row === tokens.length - 1 ? ` ${recipe.words}` : "");
  };

  function remember() {
    ghost = outputs();
  }

  function update(ms) {
    const all = weights();
    const now = turned();
    const share = (t, s) => all[t][s] * values[s];
    stage.publish({ tokens: [...values], weights: all, outputs: outputs(), complete: positions.filter(complete), looked });
    stage.say(words());
    return stage.show({
      values: [...values],
      weights: all,
      places: each((t, s) => (t === now ? [slot, low + pitch * s] : [home + stride * s, top + pitch * t])),
      shares: positions.map((s) => (now < 0 ? values[s] : looked && s !== looked.s ? 0 : share(now, s))),
      flights: each((t, s) => {
        const there = arrived(t, s);
        const before = sum(positions.slice(0, s).map((other) => share(t, other)));
        return {
          x: there ? sink + unit * before : source,
          y: (there ? middle(t) : middle(s, low)) - bar / 2,
          length: share(t, s),
          opacity: there ? (looked && (t !== looked.t || s !== looked.s) ? 0.3 : 1) : 0,
        };
      }),
      framed: top + pitch * Math.max(0, now) - 4,
      lengths: outputs(),
    }, ms);
  }

  stage.player(tokens.length, async (step) => {
    const mine = ++walk;
    stage.release();
    [row, poured, ghost] = [step - 1, 0, null];
    await update();
    while (row >= 0 && mine === walk && poured < tokens.length) {
      poured += 1;
      if (recipe.takes[row][poured - 1] || poured === tokens.length) await update();
    }
  });
  const above = html(stage.figure, "div", { class: "controls" }, "Weights:");
  stage.figure.insertBefore(above, stage.svg.parentNode);
  const buttons = recipes.map((other) => stage.button(other.name, (pressed) => {
    remember();
    recipe = other;
    for (const button of buttons) button.setAttribute("aria-pressed", button === pressed);
    update();
    stage.say(other.words);
  }, { "aria-pressed": other === recipe }));
  above.append(...buttons);
  update(0);
}
