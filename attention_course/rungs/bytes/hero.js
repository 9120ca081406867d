// Rung {bytes}: scores arrive in blocks and are forgotten. Three numbers are kept, the largest score and two sums, and
// what was added before shrinks when a larger score arrives.

function play(stage, { scores: start, values, block, limit }) {
  const scores = [...start];
  const blocks = scores.length / block;
  const LAST = 3 * blocks - 1; // a step for the first block, three for each other, and one for the division
  const [left, length, zero, unit] = stage.fit([136, 492, 128, 15], [0, 327, 158, 15]); // of rows; where a score of 0 is; pixels for a score of 1
  const pitch = length / scores.length;
  const [MOST, SUM, MIX, OUTPUT] = stage.fit([196, 242, 290, 352], [236, 290, 346, 424]); // the rows of what is kept
  const wide = length / scores.length; // pixels for an exp of 1; all of them together are at most 6
  const heavy = length / sum(values); // and for 1 of the weighted sum
  const place = (value) => left + stage.fit(0, 12) + ((length - stage.fit(0, 24)) * value) / Math.max(...values); // on the line of outputs
  const x = (s) => left + pitch * (s + 0.5);
  let step = 0;

  // The block that is there at a step, and what is done with it: 0 it arrives, 1 the past is corrected, 2 it is added.
  const moment = () => {
    if (!step) return { here: -1, done: 2 };
    if (step === LAST) return { here: blocks - 1, done: 3 };
    return step === 1 ? { here: 0, done: 2 } : { here: Math.floor((step + 1) / 3), done: (step + 1) % 3 };
  };

  // What is kept before and after each block.
  const trace = () => {
    let kept = { largest: -Infinity, total: 0, mix: 0 };
    return Array.from({ length: blocks }, (_, b) => {
      const given = scores.slice(b * block, (b + 1) * block);
      const before = kept;
      const largest = Math.max(before.largest, ...given);
      const factor = Math.exp(before.largest - largest);
      const exps = given.map((score) => Math.exp(score - largest));
      const mixed = dot(exps, values.slice(b * block, (b + 1) * block));
      kept = { largest, total: before.total * factor + sum(exps), mix: before.mix * factor + mixed };
      return { before, factor, exps, after: kept };
    });
  };

  // Painted from back to front.
  const text = (x, y, words, look = "") => svg(stage.svg, "text", { x, y, class: look }, words);
  const row = (y, name, note) => {
    text(0, y - stage.fit(8, 26), name, "start strong");
    return text(stage.fit(0, 110), y + stage.fit(9, -26), note, "start small muted");
  };
  if (stage.narrow) text(0, 10, "scores to drag, and a value for each", "start strong");
  else {
    row(zero - 50, "scores", "drag one");
    text(0, zero + 22, "values", "start strong");
  }
  const most = row(MOST, "largest so far", "");
  const total = row(SUM, "sum of exps", "");
  const mix = row(MIX, "exps × values", "");
  const mean = row(OUTPUT - stage.fit(0, 20), "output", "");
  const frames = Array.from({ length: blocks }, (_, b) => {
    const at = { x: left + b * block * pitch + 3, y: stage.fit(4, 24), width: block * pitch - 6, height: zero + stage.fit(32, 12), rx: 6 };
    svg(stage.svg, "rect", { ...at, fill: "none", stroke: "var(--faint)" });
    return { rect: stage.svg.lastChild, label: text(left + (b + 0.5) * block * pitch, stage.fit(16, 36), "", "small muted") };
  });
  svg(stage.svg, "line", { x1: left, x2: left + length, y1: zero, y2: zero, stroke: "var(--faint)" });
  const bars = scores.map((_, s) => {
    const node = svg(stage.svg, "g");
    const bar = svg(node, "rect", { x: x(s) - 16, width: 32, fill: "var(--weight)", "fill-opacity": 0.45 });
    const grip = svg(node, "rect", { x: x(s) - 20, width: 40, height: 7, rx: 3, fill: "var(--weight)" });
    const touch = svg(node, "rect", { x: x(s) - 26, width: 52, height: stage.fit(28, 44), fill: "transparent" });
    const label = svg(node, "text", { x: x(s) });
    svg(node, "text", { x: x(s), y: zero + 22, style: "fill: var(--mix)" }, values[s]);
    stage.drag(node, `score ${s}`, {
      at: () => [x(s), zero - unit * scores[s]],
      move: (_, y) => {
        const score = Math.round((2 * (zero - y)) / unit) / 2;
        scores[s] = Math.max(0, Math.min(limit, score));
        update(0);
      },
      tell: () => number(scores[s], 1),
      step: unit / 2,
    });
    return { node, bar, grip, touch, label };
  });
  const chip = svg(stage.svg, "g");
  svg(chip, "rect", { x: -24, y: -12, width: 48, height: 24, rx: 6, fill: "var(--weight)", "fill-opacity": 0.15, stroke: "var(--weight)" });
  const top = svg(chip, "text", { class: "strong" });
  const factor = text(left + 62, MOST, "", "start");
  const pile = (y, colour) => {
    const dashed = { fill: "none", stroke: "var(--muted)", "stroke-dasharray": "3 3" };
    const was = svg(stage.svg, "rect", { x: left, y: y - 16, height: 32, ...dashed });
    const old = svg(stage.svg, "rect", { x: left, y: y - 13, height: 26, fill: colour, "fill-opacity": 0.75, class: "old" });
    const edges = { stroke: "var(--paper)", "stroke-width": 2 };
    const fresh = Array.from({ length: block }, () =>
      svg(stage.svg, "rect", { y: y - 13, height: 26, fill: colour, "fill-opacity": 0.35, class: "fresh", ...edges }));
    return { was, old, fresh };
  };
  const [ofSum, ofMix] = [pile(SUM, "var(--weight)"), pile(MIX, "var(--mix)")];
  svg(stage.svg, "line", { x1: left, x2: left + length, y1: OUTPUT, y2: OUTPUT, stroke: "var(--faint)" });
  for (let tick = 0; tick <= Math.max(...values); tick += 10) {
    svg(stage.svg, "line", { x1: place(tick), x2: place(tick), y1: OUTPUT - 4, y2: OUTPUT + 4, stroke: "var(--faint)" });
    text(place(tick), OUTPUT + 18, tick, "small muted");
  }
  const whole = svg(stage.svg, "circle", { cy: OUTPUT, r: 11, fill: "none", stroke: "var(--text)", "stroke-width": 2 });
  const found = svg(stage.svg, "circle", { cy: OUTPUT, r: 6, fill: "var(--mix)" });
  const equal = text(0, OUTPUT - 24, "the softmax over the whole row", "small");

  stage.paint = (now) => {
    bars.forEach(({ node, bar, grip, touch, label }, s) => {
      const y = zero - unit * now.scores[s];
      set(bar, { y, height: zero - y });
      set(grip, { y: y - 4 });
      set(touch, { y: y - touch.getAttribute("height") / 2 });
      set(label, { y: y - 14 });
      label.textContent = number(scores[s], 1);
      node.style.opacity = now.light[Math.floor(s / block)];
    });
    frames.forEach(({ rect }, b) => set(rect, { "stroke-width": 1 + now.framed[b], opacity: 0.4 + 0.6 * now.framed[b] }));
    set(chip, { transform: `translate(${left + 26} ${MOST})`, opacity: now.any });
    for (const [{ was, old, fresh }, part, scale] of [[ofSum, now.sum, wide], [ofMix, now.mix, heavy]]) {
      set(was, { width: scale * part.was, opacity: now.ghost });
      set(old, { width: scale * part.old });
      fresh.forEach((rect, i) => {
        set(rect, { x: left + scale * (part.old + sum(part.fresh.slice(0, i))), width: scale * part.fresh[i] });
      });
    }
    set(found, { cx: place(now.output), opacity: now.any });
    set(whole, { cx: place(now.output), opacity: now.over });
    set(equal, { x: Math.max(left + 90, Math.min(left + length - 90, place(now.output))), opacity: now.over });
  };

  function update(ms) {
    const { here, done } = moment();
    const all = trace();
    const current = all[Math.max(0, here)];
    const { before, after, exps } = current;
    const [any, added, over] = [here >= 0, done >= 2, done === 3];
    const share = done >= 1 ? current.factor : 1;
    const mixed = exps.map((exp, i) => exp * values[here * block + i]);
    const none = exps.map(() => 0);
    const kept = added ? after : { largest: done ? after.largest : before.largest, total: before.total * share, mix: before.mix * share };
    const weights = softmax(scores);
    const output = any ? (added ? after.mix / after.total : before.mix / before.total) : 0;
    const larger = here > 0 && after.largest > before.largest;
    const [old, next] = [number(before.largest, 1), number(after.largest, 1)];
    frames.forEach(({ label }, b) => (label.textContent = !any || b > here ? "to come" : b < here || over ? "forgotten" : "here"));
    top.textContent = any ? number(added || done ? after.largest : before.largest, 1) : "";
    factor.textContent = here > 0 && done < 3 ? `× exp(${old} − ${next}) = ${number(current.factor)}` : "";
    factor.style.opacity = done === 2 ? 0.35 : 1;
    most.textContent = any ? "a score" : "nothing yet";
    total.textContent = any ? number(kept.total) : "";
    mix.textContent = any ? number(kept.mix) : "";
    mean.textContent = any ? number(output) : "";
    stage.publish({
      step, here, done, scores: [...scores], largest: any ? kept.largest : null, total: any ? kept.total : 0,
      mix: any ? kept.mix : 0, factor: current.factor, output, whole: dot(weights, values),
    });
    const [first, second] = [here * block, here * block + block - 1].map((s) => number(scores[s] ?? 0, 1));
    stage.say([
      [
        "",
        "",
        any ? (here ? `The new exps are added: ${exps.map((exp) => number(exp)).join(" and ")}. The two scores can go now, because the three numbers on the left are all that the next block needs.`
          : `The scores ${first} and ${second} arrive. Their exps, relative to ${next}, make the sum ${number(after.total)}, and each value times its exp makes the weighted sum. Then the scores are forgotten.`)
          : "Six scores will arrive, two at a time, each with a value. Only three numbers are kept. Press Step, or drag a score first.",
        `The row has ended, so divide once, the weighted sum by the sum. That gives ${number(output)}. The softmax over the whole row gives ${number(dot(weights, values))}, and you never held that row.`,
      ],
      [
        larger ? `The scores ${first} and ${second} arrive. The largest is ${next} now, and everything so far was counted from ${old}.`
          : `The scores ${first} and ${second} arrive. Neither is larger than ${old}, which everything so far was counted from.`,
        larger ? `All that was added before shrinks by one factor, exp(${old} − ${next}) = ${number(current.factor)}. That takes no forgotten score. The output stays where it was, because both sums shrink alike.`
          : `The largest score is the same, so the factor is exp(0) = 1 and nothing shrinks.`,
      ],
    ][done < 2 ? 1 : 0][done]);
    return stage.show({
      scores: [...scores],
      light: all.map((_, b) => (b === here && !over ? 1 : b < here || over ? 0.35 : 0.6)),
      framed: all.map((_, b) => Number(b === here && !over)),
      any: Number(any),
      over: Number(over),
      ghost: Number(here > 0 && done === 1 && larger),
      sum: { was: before.total, old: !any ? 0 : over ? after.total : before.total * share, fresh: any && done === 2 ? exps : none },
      mix: { was: before.mix, old: !any ? 0 : over ? after.mix : before.mix * share, fresh: any && done === 2 ? mixed : none },
      output,
    }, ms);
  }

  stage.player(LAST, (next) => {
    step = next;
    return update();
  }, 1500);
  update(0);
}
