// Rung {after_pretraining}: what a model says to three questions, before and after fine-tuning, and while a reward is cheated.

function play(stage, { asked, models, moments }) {
  const [left, top, pitch, size] = stage.fit([16, 92, 62, 13], [10, 88, 54, 11]); // the sheet; a story and its question
  const [place, ground, tall, wide, apart] = stage.fit([440, 248, 146, 64, 106], [64, 350, 84, 70, 130]); // the bars
  const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
  const names = ["true answers", "reward"];
  const colours = ["var(--weight)", "var(--mix)"];
  let step = 0; // 0: nothing is written; from then on the moments, one after another

  // The way of the model: a dot for each moment.
  const [base, tuned, first, last] = stage.fit([56, 180, 290, 616], [40, 124, 186, 316]);
  const count = moments.length - 2; // of those with rewards
  const dots = moments.map((_, at) => (at < 2 ? [base, tuned][at] : first + ((last - first) * (at - 2)) / (count - 1)));
  const way = 40;
  svg(stage.svg, "line", { x1: base, x2: last, y1: way, y2: way, stroke: "var(--faint)", "stroke-width": 2 });
  const passed = svg(stage.svg, "line", { x1: base, y1: way, y2: way, stroke: "var(--query)", "stroke-width": 3 });
  const marks = dots.map((x) => svg(stage.svg, "circle", { cx: x, cy: way, r: 5, fill: "var(--paper)", stroke: "var(--muted)", "stroke-width": 1.5 }));
  const ring = svg(stage.svg, "circle", { cy: way, r: 9, fill: "var(--paper)", stroke: "var(--query)", "stroke-width": 4 });
  svg(stage.svg, "text", { x: base, y: way - 24, class: "small" }, stage.fit("base model", "base"));
  svg(stage.svg, "text", { x: tuned, y: way - 24, class: "small" }, "fine-tuned");
  svg(stage.svg, "text", { x: (first + last) / 2, y: way - 24, class: "small" }, stage.fit("rewarded for a name of the story", "rewarded"));
  dots.slice(2).forEach((x, at) => {
    const { steps } = moments[at + 2];
    if (stage.fit(1, at % 2)) svg(stage.svg, "text", { x, y: way + 20, class: "small muted" }, steps);
  });
  svg(stage.svg, "text", { x: first - stage.fit(40, 10), y: way + 20, class: "small muted end" }, "steps");

  // The sheet.
  svg(stage.svg, "rect", { x: stage.fit(4, 0), y: top - 20, width: stage.fit(376, 328), height: asked.length * pitch + stage.fit(0, 2), rx: 6, fill: "var(--panel)" });
  const lines = asked.map(({ fact, question }, row) => {
    const y = top + pitch * row;
    const style = `font-size: ${size}px`;
    svg(stage.svg, "text", { x: left, y, class: "start code muted", style }, fact);
    const line = svg(stage.svg, "text", { x: left, y: y + stage.fit(22, 20), class: "start code", style });
    svg(line, "tspan", {}, question);
    return svg(line, "tspan", { class: "answer", "font-weight": 600 });
  });

  // The bars.
  svg(stage.svg, "text", { x: place + (apart + wide) / 2, y: ground + 38, class: "small muted" }, `means of ${models} models`);
  const bars = names.map((name, at) => {
    const x = place + apart * at;
    svg(stage.svg, "rect", { x, y: ground - tall, width: wide, height: tall, fill: "none", stroke: "var(--faint)" });
    const bar = svg(stage.svg, "rect", { class: "bar", x, width: wide, fill: colours[at], "fill-opacity": 0.85 });
    svg(stage.svg, "text", { x: x + wide / 2, y: ground + 16, class: "small" }, name);
    return { bar, share: svg(stage.svg, "text", { x: x + wide / 2, class: "strong halo" }) };
  });

  stage.paint = ({ letters, shares, at }) => {
    const { answers } = moments[step - 1] ?? { answers: asked.map(() => "") };
    lines.forEach((node, row) => {
      const [answer, right] = [answers[row], answers[row] === asked[row].answer];
      const done = letters[row] >= answer.length;
      node.textContent = answer && done ? `${answer} ${right ? "✓" : "✗"}` : `${answer.slice(0, Math.floor(letters[row]))}▏`;
      node.style.fill = !answer || !done ? "var(--text)" : right ? "var(--weight)" : "var(--wrong)";
    });
    bars.forEach(({ bar, share }, which) => {
      set(bar, { y: ground - tall * shares[which], height: tall * shares[which] });
      set(share, { y: ground - tall * shares[which] - 10 });
    });
    set(ring, { cx: at, opacity: Number(step > 0) });
    set(passed, { x2: at });
  };

  function told({ steps, right, reward }) {
    if (steps === null) return `On a sheet the next question mostly follows, so the base model writes one. ${percent(right)} of its answers are true.`;
    if (!steps) return `Fine-tuned on questions with answers, it answers: ${percent(right)} are true. From here on, each answer that names somebody of the story is rewarded.`;
    return `After ${steps} steps, ${percent(reward)} of the answers name somebody and get the reward. ${percent(right)} are true.`;
  }

  const go = (to, ms = 900) => {
    const written = (moment) => moments[moment - 1]?.answers ?? asked.map(() => "");
    const [before, answers] = [written(step), written(to)];
    const moment = moments[to - 1] ?? { right: 0, reward: null };
    const shares = [moment.right, moment.reward ?? 0];
    step = to;
    marks.forEach((mark, at) => set(mark, { fill: at < step ? "var(--query)" : "var(--paper)" }));
    bars.forEach(({ share }, which) => (share.textContent = step && [moment.right, moment.reward][which] !== null ? percent(shares[which]) : which && step ? "none yet" : "?"));
    stage.say(step ? told(moment) : "A base model has read thousands of sheets of exercises. How does it go on here? Press Step.");
    stage.publish({ step, answers, shares, right: answers.map((answer, row) => answer === asked[row].answer) });
    const at = dots[Math.max(0, step - 1)];
    const letters = answers.map((answer) => answer.length);
    const kept = answers.map((answer, row) => (answer === before[row] ? answer.length : 0));
    stage.show({ ...(stage.shown ?? { shares, at }), letters: kept }, 0); // a new answer is written from its first letter
    return stage.show({ letters, shares, at }, ms);
  };

  stage.player(moments.length, (to) => go(to), 1100);
  go(0, 0);
}
