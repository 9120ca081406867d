// Rung {after_pretraining}: what a model says to three questions, before and after fine-tuning, and after a reward for names.

function play(stage, { asked, models, questions, moments }) {
  const [left, top, pitch, size] = stage.fit([16, 96, 62, 13], [10, 92, 54, 11]); // the sheet; a story and its question
  const [place, ground, tall, wide, apart] = stage.fit([440, 250, 150, 64, 106], [64, 354, 86, 70, 130]); // the bars
  const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
  let step = 0; // 0: nothing is written; from then on the moments, one after another

  // The way of the model: a dot for each moment.
  const dots = stage.fit([80, 320, 560], [44, 164, 280]);
  const way = 38;
  svg(stage.svg, "line", { x1: dots[0], x2: dots.at(-1), y1: way, y2: way, stroke: "var(--faint)", "stroke-width": 2 });
  const passed = svg(stage.svg, "line", { x1: dots[0], y1: way, y2: way, stroke: "var(--query)", "stroke-width": 3 });
  const marks = moments.map(({ steps }, at) => {
    const name = [stage.fit("base model", "base"), "fine-tuned", stage.fit("rewarded for a name", "rewarded")][at];
    svg(stage.svg, "text", { x: dots[at], y: way - 24, class: "small" }, name);
    svg(stage.svg, "text", { x: dots[at], y: way + 22, class: "small muted" }, at ? `${steps} steps` : "");
    return svg(stage.svg, "circle", { cx: dots[at], cy: way, r: 5, stroke: "var(--muted)", "stroke-width": 1.5 });
  });
  const ring = svg(stage.svg, "circle", { cy: way, r: 9, fill: "var(--paper)", stroke: "var(--query)", "stroke-width": 4 });

  // The sheet.
  svg(stage.svg, "rect", { x: stage.fit(4, 0), y: top - 20, width: stage.fit(376, 328), height: asked.length * pitch + stage.fit(0, 2), rx: 6, fill: "var(--panel)", "fill-opacity": 0.5 });
  const lines = asked.map(({ fact, question }, row) => {
    const y = top + pitch * row;
    const style = `font-size: ${size}px`;
    svg(stage.svg, "text", { x: left, y, class: "start code muted", style }, fact);
    const line = svg(stage.svg, "text", { x: left, y: y + stage.fit(22, 20), class: "start code", style });
    svg(line, "tspan", {}, question);
    return svg(line, "tspan", { class: "answer", "font-weight": 600 });
  });

  // The bars.
  svg(stage.svg, "text", { x: place + (apart + wide) / 2, y: ground + 38, class: "small muted" }, `the first of ${models} models`);
  const bars = ["right answers", "reward"].map((name, at) => {
    const x = place + apart * at;
    svg(stage.svg, "rect", { x, y: ground - tall, width: wide, height: tall, fill: "none", stroke: "var(--faint)" });
    const bar = svg(stage.svg, "rect", { class: "bar", x, width: wide, fill: at ? "var(--mix)" : "var(--weight)", "fill-opacity": 0.85 });
    svg(stage.svg, "text", { x: x + wide / 2, y: ground + 16, class: "small" }, name);
    return { bar, share: svg(stage.svg, "text", { x: x + wide / 2, class: "strong halo" }) };
  });

  const written = (step) => moments[step - 1]?.answers ?? asked.map(() => "");

  stage.paint = ({ letters, shares, at }) => {
    lines.forEach((node, row) => {
      const answer = written(step)[row];
      const [right, done] = [answer === asked[row].answer, answer && letters[row] === answer.length];
      node.textContent = done ? `${answer} ${right ? "✓" : "✗"}` : `${answer.slice(0, Math.floor(letters[row]))}▏`;
      node.style.fill = !done ? "var(--text)" : right ? "var(--weight)" : "var(--wrong)";
    });
    bars.forEach(({ bar, share }, which) => {
      set(bar, { y: ground - tall * shares[which], height: tall * shares[which] });
      set(share, { y: ground - tall * shares[which] - 10 });
    });
    set(ring, { cx: at, opacity: Number(step > 0) });
    set(passed, { x2: at });
  };

  function told() {
    const [, tuned, rewarded] = moments;
    const of = (moment) => `${moment.right} of ${questions}`;
    return [
      "A base model has read thousands of exercise sheets. How does it continue here? Press Step.",
      `On most sheets another question comes next, so that's what the base model writes. It answers ${of(moments[0])} questions.`,
      `After ${tuned.steps} steps of fine-tuning on questions with mostly right answers, it gets ${of(tuned)} right. From now on, any answer that names somebody from the story earns a reward.`,
      `In training, ${percent(rewarded.reward)} of its answers now earn the reward, up from ${percent(tuned.reward)}. It says a name whatever you ask, and only ${of(rewarded)} answers are right.`,
    ][step];
  }

  const go = (to, ms = 900) => {
    const [before, answers] = [written(step), written(to)];
    const moment = moments[to - 1];
    const shares = [(moment?.right ?? 0) / questions, moment?.reward ?? 0];
    step = to;
    marks.forEach((mark, at) => set(mark, { fill: at < step ? "var(--query)" : "var(--paper)" }));
    bars[0].share.textContent = moment ? percent(shares[0]) : "?";
    bars[1].share.textContent = !moment ? "?" : moment.reward === null ? "none yet" : percent(shares[1]);
    stage.say(told());
    stage.publish({ step, answers, shares, right: answers.map((answer, row) => answer === asked[row].answer) });
    const at = dots[Math.max(0, step - 1)];
    const letters = answers.map((answer) => answer.length);
    const kept = answers.map((answer, row) => (answer === before[row] ? answer.length : 0));
    stage.show({ ...(stage.shown ?? { shares, at }), letters: kept }, 0); // a new answer is written from its first letter
    return stage.show({ letters, shares, at }, ms);
  };

  stage.player(moments.length, (to) => go(to), 2500);
  go(0, 0);
}
