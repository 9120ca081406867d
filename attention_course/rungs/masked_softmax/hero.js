// Rung {masked_softmax}: scores that one drags, the weights that share a total of 1, and a mask over what comes later: a shutter that drops.

const SLATS = 14; // of the mask

function play(stage, { tokens, scores: start, limit, place: first }) {
  const [left, stride, unit, zero] = stage.fit([78, 84, 26, 140], [26, 50, 25, 148]); // columns; pixels for a score of 1; the height of score 0
  const [top, bottom, stems, strip, thick] = stage.fit([28, 244, 274, 332, 34], [54, 244, 300, 350, 34]); // the mask's ends, the ribbons' tops, the strip
  const row = stage.fit(14, 32); // of the tokens
  const length = stride * tokens.length; // of the strip, for the total of 1
  const scores = [...start];
  let place = first; // the token that looks back
  let shut = false;
  let ghost = null; // the weights before the last change
  let looked = null; // the token whose weight is pointed at

  const x = (s) => left + stride * (s + 0.5);
  const hidden = (s) => shut && s > place;
  const weights = () => softmax(scores.map((score, s) => (hidden(s) ? -Infinity : score)));
  const quoted = (token) => `“${token}”`;
  const later = () => tokens.slice(place + 1).map(quoted).join(", ").replace(/, ([^,]*)$/, " and $1");

  // Painted from back to front.
  const text = (x, y, words, look = "") => svg(stage.svg, "text", { x, y, class: look }, words);
  text(0, stage.fit(14, 8), stage.fit("looks back:", "the framed token looks back"), "start small muted");
  if (stage.narrow) {
    text(0, 0, "scores").setAttribute("transform", `translate(8 ${zero - 36}) rotate(-90)`);
    text(0, stems - 40, "softmax ↓ weights, with a total of 1", "start");
  } else {
    text(0, zero - unit * limit, "scores", "start");
    text(0, stems - 38, "softmax ↓", "start");
    text(0, stems - 14, "weights", "start");
    text(0, strip + thick / 2, "total 1", "start");
  }
  const before = text(0, strip + thick + stage.fit(29, 44), "before", "start small muted");
  svg(stage.svg, "line", { x1: left, x2: left + length, y1: zero, y2: zero, stroke: "var(--faint)" });
  for (const score of [limit, 0, -limit]) text(left - 4, zero - unit * score, number(score), "small muted end");
  const handles = tokens.map((token, s) => {
    const node = svg(stage.svg, "g");
    const bar = svg(node, "rect", { x: x(s) - 18, width: 36, "fill-opacity": 0.45 });
    const grip = svg(node, "rect", { x: x(s) - 22, width: 44, height: 8, rx: 4 });
    const touch = svg(node, "rect", { x: x(s) - 30, width: 60, height: stage.fit(30, 44), fill: "transparent" });
    const label = svg(node, "text", { x: x(s) });
    for (const taken of ["pointerdown", "focus"]) node.addEventListener(taken, remember);
    stage.drag(node, `score of ${token}`, {
      at: () => [x(s), zero - unit * scores[s]],
      move: (_, y) => {
        const score = Math.round((10 * (zero - y)) / unit) / 10;
        scores[s] = Math.max(-limit, Math.min(limit, score));
        update(dragged(s), 0);
      },
      tell: () => number(scores[s], 1),
      step: unit / 2,
    });
    return { node, bar, grip, touch, label };
  });
  const blue = { fill: "var(--weight)", "pointer-events": "all" };
  const shares = tokens.map((token, s) => {
    const node = svg(stage.svg, "g");
    if (stage.narrow) svg(node, "rect", { x: x(s) - stride / 2, y: stems - 32, width: stride, height: 44, fill: "transparent" });
    const ribbon = svg(node, "path", { ...blue, "fill-opacity": 0.25 });
    const edges = { stroke: "var(--paper)", "stroke-width": 2 };
    const part = svg(node, "rect", { ...blue, ...edges, class: "part", y: strip, height: thick, "fill-opacity": 0.55 });
    const name = svg(node, "text", {}, token);
    const label = svg(node, "text", { x: x(s), y: stems - 14 });
    stage.point(node, s, `weight of ${token}`, (at) => {
      looked = at;
      update(at === null ? invitation() : told(at));
    });
    return { node, ribbon, part, name, label };
  });
  svg(stage.svg, "rect", { x: left, y: strip, width: length, height: thick, fill: "none", stroke: "var(--text)" });
  const dashed = { fill: "none", stroke: "var(--muted)", "stroke-dasharray": "3 3" };
  const shadows = tokens.map(() => svg(stage.svg, "rect", { ...dashed, y: strip + thick + 23, height: 11 }));
  const grey = { fill: "var(--panel)", "fill-opacity": 0.75, stroke: "var(--faint)", "pointer-events": "none" };
  const slats = Array.from({ length: SLATS }, () => svg(stage.svg, "rect", { ...grey, height: (bottom - top) / SLATS }));
  const word = text(0, top + (bottom - top) / SLATS / 2, "mask", "small");
  tokens.forEach((token, s) => text(x(s), row, token, "strong"));
  const marker = svg(stage.svg, "g");
  if (stage.narrow) svg(marker, "rect", { x: -25, y: row - 22, width: 50, height: 44, fill: "transparent" });
  svg(marker, "rect", { x: stage.fit(-34, -20), y: row - 10, width: stage.fit(68, 40), height: 21, rx: 6, fill: "transparent", stroke: "var(--query)", "stroke-width": 2 });
  stage.drag(marker, "the token that looks back", {
    at: () => [x(place), row],
    move: (px) => {
      const next = Math.max(0, Math.min(tokens.length - 1, Math.round((px - x(0)) / stride)));
      if (next === place) return;
      remember();
      place = next;
      update(placed());
    },
    tell: () => tokens[place],
    step: stride,
  });

  const ribbon = (s, from, width) => {
    const [half, y, end] = [Math.max(1, (stage.fit(32, 22) * width) / length), (stems + strip) / 2, from + width];
    return `M${x(s) - half} ${stems}C${x(s) - half} ${y} ${from} ${y} ${from} ${strip}H${end}C${end} ${y} ${x(s) + half} ${y} ${x(s) + half} ${stems}Z`;
  };

  stage.paint = ({ scores: now, weights: parts, drop, edge }) => {
    const final = weights();
    const light = (s) => (looked === null || looked === s ? 1 : 0.35);
    handles.forEach(({ node, bar, grip, touch, label }, s) => {
      const y = zero - unit * now[s];
      const fill = now[s] < 0 ? "var(--negative)" : "var(--weight)";
      set(bar, { y: Math.min(y, zero), height: Math.abs(y - zero), fill });
      set(grip, { y: y - 4, fill });
      set(touch, { y: y - touch.getAttribute("height") / 2 });
      set(label, { y: now[s] < 0 ? y + 15 : y - 14 });
      label.textContent = number(scores[s], 1);
      node.style.opacity = light(s);
    });
    let free = 0; // where the names below the strip, of parts too thin for them, end
    shares.forEach(({ node, ribbon: shape, part, name, label }, s) => {
      const [from, width] = [left + length * sum(parts.slice(0, s)), length * parts[s]];
      set(shape, { d: ribbon(s, from, width), visibility: parts[s] ? "visible" : "hidden" });
      set(part, { x: from, width, visibility: parts[s] ? "visible" : "hidden" });
      const [half, thin] = [4 * tokens[s].length, width <= 4 + 7 * tokens[s].length];
      const at = thin ? Math.max(from + width / 2, free + half) : from + width / 2;
      if (thin && parts[s]) free = at + half + 5;
      set(name, { x: at, y: strip + thick * (thin ? 1.35 : 0.5), visibility: parts[s] && !(thin && stage.narrow) ? "visible" : "hidden" });
      label.textContent = number(final[s]);
      label.setAttribute("class", final[s] ? "strong" : "muted");
      node.style.opacity = light(s);
    });
    const moved = ghost !== null && ghost.some((weight, s) => Math.abs(weight - final[s]) > 0.0005);
    before.setAttribute("visibility", moved ? "visible" : "hidden");
    shadows.forEach((shadow, s) => {
      if (moved) set(shadow, { x: left + length * sum(ghost.slice(0, s)), width: length * ghost[s] });
      shadow.setAttribute("visibility", moved ? "visible" : "hidden");
    });
    // Rolled up, all slats lie on the first.
    slats.forEach((slat, at) => {
      set(slat, { x: left + stride * edge, width: length - stride * edge, y: top + (drop * at * (bottom - top)) / SLATS });
    });
    word.textContent = drop < 0.5 && !stage.narrow ? "mask, rolled up" : "mask";
    set(word, { x: left + (length + stride * edge) / 2, visibility: edge < tokens.length ? "visible" : "hidden" });
    marker.setAttribute("transform", `translate(${left + stride * (edge - 0.5)} 0)`);
  };

  const invitation = () => {
    if (shut) return `Drag any score, even a hidden one, or raise the mask over what comes after ${quoted(tokens[place])}.`;
    return `Drag a score up or down and watch the weights share a total of 1. Then drop the mask over what comes after ${quoted(tokens[place])}.`;
  };
  const told = (s) => {
    if (hidden(s)) return `${quoted(tokens[s])} is behind the mask, so its weight is 0.`;
    return `${quoted(tokens[s])} has the score ${number(scores[s], 1)} and gets ${number(weights()[s])} of the total of 1.`;
  };
  const dragged = (s) => {
    const score = number(scores[s], 1);
    if (hidden(s)) return `${quoted(tokens[s])} is behind the mask. Its score is now ${score}, but its weight stays 0, and no other weight moves.`;
    if (shut && place === 0) return `${quoted(tokens[s])} is the only one left, so its weight is 1, whatever its score.`;
    const gain = weights()[s] - ghost[s];
    const [won, lost] = gain < 0 ? ["lost", "gained"] : ["gained", "lost"];
    const most = gain > 0 && weights()[s] > 0.5 ? " That is more than half." : "";
    return `${told(s)}${most} It ${won} ${number(Math.abs(gain))}, and the others together ${lost} as much.`;
  };
  const placed = () => {
    if (place === tokens.length - 1) return `${quoted(tokens[place])} looks back. Nothing comes after it, so there is nothing to hide.`;
    if (!shut) return `${quoted(tokens[place])} looks around. Without the mask it also sees what comes later, ${later()}.`;
    const freed = sum(softmax(scores).slice(place + 1));
    const swollen = `Each of the others is ${number(1 / (1 - freed))} times as large as without the mask.`;
    return `The mask hides ${later()} and frees ${number(freed)} of the total. ${swollen}`;
  };
  const level = () => {
    const share = number(weights()[0]);
    return `Equal scores give equal weights, ${share} each${shut ? " for what is not hidden. That is the mean of the past again" : ""}.`;
  };

  function remember() {
    ghost = weights();
  }

  function update(words, ms) {
    stage.publish({ scores: [...scores], hidden: tokens.map((_, s) => hidden(s)), weights: weights(), ghost });
    stage.say(words);
    return stage.show({ scores: [...scores], weights: weights(), drop: Number(shut), edge: place + 1 }, ms);
  }

  const move = (down) => {
    remember();
    shut = down;
    drop.textContent = shut ? "Raise the mask" : "Drop the mask";
    return update(placed());
  };
  const drop = stage.button("Drop the mask", () => move(!shut));
  stage.play = () => move(true);
  stage.button("All scores 0", () => {
    remember();
    scores.fill(0);
    update(level());
  });
  update(invitation(), 0);
}
