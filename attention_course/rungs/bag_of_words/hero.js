// Rung {bag_of_words}: tokens fly into the bag one at a time, and each pulls the mean 1/(t + 1) of the way towards itself.

function play(stage, { tokens, limit, orders }) {
  const [left, top, side] = stage.fit([150, 12, 340], [44, 8, 264]);
  const unit = side / (2 * limit);
  const x = (value) => left + unit * (value + limit);
  const y = (value) => top + unit * (limit - value);
  const points = tokens.map((token) => [...token]);
  let turn = 0; // which of the orders
  let seen = 0; // how many tokens are in the bag
  const ghosts = []; // paths in the orders before this one

  const order = () => orders[turn];
  const means = (arrivals) => {
    const total = [0, 0];
    return arrivals.map((token, t) => {
      points[token].forEach((value, channel) => (total[channel] += value));
      return total.map((value) => value / (t + 1));
    });
  };

  // Painted from back to front.
  svg(stage.svg, "rect", { x: left, y: top, width: side, height: side, fill: "none", stroke: "var(--faint)" });
  for (const at of [-4, -2, 0, 2, 4]) {
    svg(stage.svg, "text", { x: x(at), y: top + side + 13, class: "small muted" }, number(at));
    svg(stage.svg, "text", { x: left - 8, y: y(at), class: "small muted end" }, number(at));
  }
  svg(stage.svg, "text", { x: left + side / 2, y: top + side + 32, class: "small" }, "channel 0");
  svg(stage.svg, "text", { transform: `translate(${left - 34} ${top + side / 2}) rotate(-90)`, class: "small" }, "channel 1");
  const shadows = orders.slice(1).map(() => svg(stage.svg, "polyline", { fill: "none", stroke: "var(--muted)", "stroke-width": 2, "stroke-dasharray": "4 4", opacity: 0.55 }));
  const path = svg(stage.svg, "polyline", { fill: "none", stroke: "var(--mix)", "stroke-width": 3, "stroke-linejoin": "round" });
  const pull = svg(stage.svg, "line", { stroke: "var(--weight)", "stroke-width": 2, "stroke-dasharray": "2 4" });
  const dots = tokens.map((_, token) => {
    const dot = svg(stage.svg, "g");
    svg(dot, "circle", { r: stage.fit(15, 22), fill: "transparent" }); // a place to take hold of it
    svg(dot, "circle", { r: 8, fill: "var(--weight)", stroke: "var(--paper)" });
    svg(dot, "text", { x: 11, y: -11, class: "start halo" }, "");
    stage.drag(dot, `token ${token}`, {
      at: () => [x(points[token][0]), y(points[token][1])],
      move: (px, py) => {
        const inside = (value) => Math.max(-limit, Math.min(limit, Math.round(4 * value) / 4));
        points[token] = [inside((px - left) / unit - limit), inside(limit - (py - top) / unit)];
        ghosts.length = 0;
        update(0);
      },
      tell: () => `at (${points[token].map((value) => number(value)).join(", ")})`,
      step: unit / 2,
    });
    return dot;
  });
  const courier = svg(stage.svg, "circle", { r: 5, fill: "var(--weight)" });
  const ring = svg(stage.svg, "circle", { r: 13, fill: "none", stroke: "var(--mix)", "stroke-width": 4 });

  stage.paint = ({ places, trail, mean, flight, bagged }) => {
    const pixels = (list) => list.map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
    dots.forEach((dot, token) => {
      dot.setAttribute("transform", `translate(${x(places[token][0])} ${y(places[token][1])})`);
      dot.style.opacity = 0.5 + 0.5 * bagged[token];
      const [right, low] = [places[token][0] > limit - 0.75, places[token][1] > limit - 0.75];
      set(dot.lastChild, { x: right ? -11 : 11, y: low ? 15 : -11, class: `halo ${right ? "end" : "start"}` });
      dot.lastChild.textContent = `t=${order().indexOf(token)}`;
    });
    set(path, { points: pixels([...trail, ...(trail.length ? [mean] : [])]) });
    shadows.forEach((shadow, at) => set(shadow, { points: ghosts[at] ? pixels(ghosts[at]) : "" }));
    set(ring, { cx: x(mean[0]), cy: y(mean[1]), visibility: seen ? "visible" : "hidden" });
    set(courier, { cx: x(flight[0]), cy: y(flight[1]), visibility: seen ? "visible" : "hidden" });
    const newest = seen ? places[order()[seen - 1]] : mean;
    set(pull, { x1: x(newest[0]), y1: y(newest[1]), x2: x(mean[0]), y2: y(mean[1]), visibility: seen > 1 ? "visible" : "hidden" });
  };

  const update = async (ms) => {
    const arrived = order().slice(0, seen);
    const path = means(arrived);
    const mean = path.at(-1) ?? points[order()[0]];
    const bagged = points.map((_, token) => Number(arrived.includes(token)));
    stage.publish({ tokens: order().map((token) => points[token]), means: path });
    const share = seen === 1 ? "all" : `1/${seen}`;
    stage.say(
      seen
        ? `t = ${seen - 1}: the token pulls the mean ${share} of the way. It is now (${mean.map((value) => number(value)).join(", ")}).` +
            (seen === tokens.length && ghosts.length ? " Another order, another path, the same end." : "")
        : "Press Play. Drag a token with the mouse, a finger or the arrow keys.",
    );
    const state = { places: points.map((point) => [...point]), trail: path.slice(0, -1), mean, flight: mean, bagged };
    if (seen && ms !== 0) {
      stage.shown = { ...stage.shown, flight: points[order()[seen - 1]] }; // the newest flies to the ring
      if (seen === 1) stage.shown.mean = mean;
    }
    await stage.show(state, ms);
  };

  const player = stage.player(tokens.length, (step) => {
    seen = step;
    return update();
  });
  stage.button("Shuffle", async () => {
    player.stop();
    if (seen === tokens.length) {
      ghosts.unshift(means(order()));
      ghosts.length = Math.min(ghosts.length, shadows.length);
    }
    turn = (turn + 1) % orders.length;
    await player.to(0);
    for (let step = 1; step <= tokens.length && seen === step - 1; step++) await player.to(step);
  });
  update(0);
}
