// Rung {speed_run}: recipes race, each with one trick more than the one above it: who first answers nearly all questions?

// A text, and whether the answer in it, if there is one, agrees with the story that it is in.
function writeTo(node, text, columns) {
  const [, story, who, answer, rest] = /^(.*gave poor (\w+) a .*Who got it\? )(Poor \w+\.)(.*)$/.exec(text) ?? [null, text];
  const right = answer === `Poor ${who}.`;
  const look = { fill: right ? "var(--weight)" : "var(--wrong)", "font-weight": 600 };
  node.replaceChildren();
  let column = 0;
  for (const [part, style] of answer ? [[story, {}], [`${answer} ${right ? "✓" : "✗"}`, look], [rest, {}]] : [[story, {}]]) {
    for (const word of columns === Infinity ? [part] : part.match(new RegExp(`\\S{1,${columns}}\\s*|\\s+`, "g")) ?? []) {
      const full = column + word.trimEnd().length > columns;
      column = full ? word.length : column + word.length;
      svg(node, "tspan", full ? { ...style, x: node.getAttribute("x"), dy: 16 } : style, word);
    }
  }
}

function play(stage, { machine, seeds, mark, runners, texts }) {
  const [left, finish, first, pitch] = stage.fit([150, 520, 44, 34], [12, 236, 56, 44]); // the lanes
  const bottom = first + pitch * (runners.length - 0.5);
  const clockY = bottom + stage.fit(48, 28);
  const [zero, end] = stage.fit([80, 624], [66, 308]); // the axis of time
  const below = stage.fit(0, 9); // the name of a lane stands beside it, or above it
  const [gaps, columns] = stage.fit([8, Infinity], [5, 40]); // most marks on the axis; characters in a line of what they write
  const total = Math.ceil(Math.max(...runners.map(({ seconds }) => seconds.at(-1))));
  const moments = 120;
  const moment = (at) => (total * at) / moments;
  const x = (accuracy) => left + ((finish - left) * accuracy) / mark;
  const lane = (runner) => first + pitch * runner;
  const time = (seconds) => zero + ((end - zero) * seconds) / total;
  const said = (seconds) => `${seconds.toFixed(1)} s`;
  const percent = (accuracy) => `${Math.round(100 * accuracy)} %`;
  const name = ({ trick }) => (trick ? `+ ${trick}` : "rung {bigram_to_gpt}’s GPT");
  let at = 0; // which of the moments
  let looked = null; // the runner that is pointed at

  // The accuracy at a time, between two measurements as if it rose evenly; it is recorded up to the mark.
  const accuracyAt = ({ seconds, accuracies }, now) => {
    const after = seconds.findIndex((measured) => measured > now);
    if (after < 0) return accuracies.at(-1);
    const [from, to] = [seconds[after - 1], seconds[after]];
    return between(accuracies[after - 1], accuracies[after], (now - from) / (to - from));
  };
  const isDone = (runner, now) => runner.accuracies.at(-1) === mark && runner.seconds.at(-1) <= now;
  // The last of the texts that was written by then.
  const textAt = (written, now) => written.filter(({ seconds }) => seconds <= now).at(-1);

  const head = stage.fit(12, 24); // of the axis of answers
  svg(stage.svg, "text", { x: stage.fit(left - 22, 2), y: stage.fit(12, 8), class: `small muted ${stage.fit("end", "start")}` }, "answers right");
  for (const accuracy of [0, 0.25, 0.5, 0.75]) {
    svg(stage.svg, "text", { x: x(accuracy), y: head, class: "small muted" }, percent(accuracy));
    svg(stage.svg, "line", { x1: x(accuracy), x2: x(accuracy), y1: head + 10, y2: bottom, stroke: "var(--faint)" });
  }
  svg(stage.svg, "text", { x: finish - stage.fit(0, 22), y: head, class: `small strong ${stage.fit("", "start")}` }, `the mark: ${percent(mark)}`);
  svg(stage.svg, "line", { x1: finish, x2: finish, y1: head + 10, y2: bottom, stroke: "var(--text)", "stroke-width": 2, "stroke-dasharray": "5 4" });
  const racing = runners.map((runner, place) => {
    const node = svg(stage.svg, "g");
    const back = svg(node, "rect", { x: 2, y: lane(place) - pitch / 2 + stage.fit(2, 0), width: stage.width - 4, height: pitch - stage.fit(4, 0), rx: 4, fill: "var(--query)" });
    const y = lane(place) + below;
    svg(node, "text", { x: stage.fit(left - 14, left - 6), y: y - stage.fit(0, 19), class: stage.fit("end", "start halo") }, name(runner));
    svg(node, "line", { x1: left, x2: finish, y1: y, y2: y, stroke: "var(--faint)", "stroke-width": 6, "stroke-linecap": "round" });
    const trail = svg(node, "line", { x1: left, y1: y, y2: y, stroke: "var(--weight)", "stroke-width": 6, "stroke-linecap": "round" });
    const ball = svg(node, "circle", { cy: y, r: 8, fill: "var(--paper)", stroke: "var(--weight)", "stroke-width": 3 });
    const result = svg(node, "text", { x: finish + 16, y, class: "start" });
    stage.point(node, place, name(runner), (found) => {
      looked = found;
      describe();
    });
    return { back, trail, ball, result };
  });

  // The clock.
  svg(stage.svg, "line", { x1: zero, x2: end, y1: clockY, y2: clockY, stroke: "var(--faint)", "stroke-width": 2 });
  const gap = [1, 2, 5, 10, 20, 50, 100].find((gap) => total / gap <= gaps);
  for (let seconds = 0; seconds <= total; seconds += gap) {
    svg(stage.svg, "line", { x1: time(seconds), x2: time(seconds), y1: clockY - 4, y2: clockY + 4, stroke: "var(--muted)" });
    svg(stage.svg, "text", { x: time(seconds), y: clockY + 18, class: "small muted" }, `${seconds} s`);
  }
  const handle = svg(stage.svg, "g");
  svg(handle, "circle", { r: stage.fit(15, 22), fill: "transparent" });
  svg(handle, "circle", { r: 9, fill: "var(--paper)", stroke: "var(--query)", "stroke-width": 4 });
  const clock = svg(stage.svg, "text", { x: stage.fit(10, 2), y: clockY, class: "start strong" });

  // What the first and the last of them write.
  const ground = clockY + stage.fit(34, 30);
  const sheet = stage.fit(46, 68);
  svg(stage.svg, "rect", { x: 4, y: ground, width: stage.width - 8, height: 4 + 2 * sheet, rx: 6, fill: "var(--panel)" });
  const sheets = [runners[0], runners.at(-1)].map((runner, row) => {
    const title = svg(stage.svg, "text", { x: stage.fit(14, 10), y: ground + 14 + sheet * row, class: "start small muted" });
    const words = svg(stage.svg, "text", { x: stage.fit(14, 10), y: ground + 34 + sheet * row, class: "start code", style: stage.fit("", "font-size: 11px") });
    return { title, words, who: row ? "with all tricks" : name(runner) };
  });
  const source = svg(stage.svg, "text", { x: stage.fit(10, 2), y: ground + 18 + 2 * sheet, class: "start small muted" });
  writeTo(source, `${Math.floor(seeds / 2) + 1}th fastest of ${seeds} seeds, on ${machine}`, stage.fit(Infinity, 44));

  stage.paint = ({ now, accuracies }) => {
    racing.forEach(({ trail, ball }, place) => {
      set(trail, { x2: x(accuracies[place]) });
      set(ball, { cx: x(accuracies[place]) });
    });
    set(handle, { transform: `translate(${time(now)} ${clockY})` });
  };

  const describe = () => {
    const now = moment(at);
    racing.forEach(({ back }, place) => set(back, { "fill-opacity": place === looked ? 0.15 : 0 }));
    if (looked !== null) {
      const { why, seconds, differs } = runners[looked];
      const above = runners[looked - 1];
      const share = above && isDone(above, Infinity) ? `, ${number(seconds.at(-1) / above.seconds.at(-1))} of the time of the lane above${differs ? "" : ", which may be chance"}` : "";
      const end = isDone(runners[looked], Infinity) ? `It reaches the mark after ${said(seconds.at(-1))}${share}` : "It does not reach the mark";
      return stage.say(`${name(runners[looked])}. ${why} ${end}.`);
    }
    const there = runners.filter((runner) => isDone(runner, now)).length;
    const rest = isDone(runners[0], now) ? "Point at a lane to see why." : `Rung {bigram_to_gpt}’s GPT answers ${percent(accuracyAt(runners[0], now))} of the questions.`;
    stage.say(`After ${said(now)}, ${there || "none"} of ${runners.length} ${there === 1 ? "has" : "have"} reached the mark. ${rest}`);
  };

  const go = (to, ms = 60) => {
    at = to;
    const now = moment(at);
    const accuracies = runners.map((runner) => accuracyAt(runner, now));
    const done = runners.map((runner) => isDone(runner, now));
    racing.forEach(({ ball, result }, place) => {
      result.textContent = done[place] ? `✓ ${said(runners[place].seconds.at(-1))}` : "";
      set(ball, { fill: done[place] ? "var(--weight)" : "var(--paper)" });
    });
    clock.textContent = said(now);
    const written = texts.map((text) => textAt(text, now));
    sheets.forEach(({ title, words, who }, row) => {
      title.textContent = `${who}, trained for ${said(written[row].seconds)}, writes`;
      writeTo(words, written[row].text, columns);
    });
    describe();
    stage.publish({ now, accuracies, done, texts: written.map(({ text }) => text) });
    return stage.show({ now, accuracies }, ms);
  };
  const player = stage.player(moments, (step) => go(step), 0);
  stage.drag(handle, "the clock", {
    at: () => [time(moment(at)), clockY],
    move: (px) => {
      player.stop();
      player.to(Math.max(0, Math.min(moments, Math.round(((px - zero) / (end - zero)) * moments))));
    },
    tell: () => said(moment(at)),
    step: (end - zero) / moments,
  });
  go(0, 0);
  stage.say("All learn from the same text and run by the same clock. Press Play, or drag the ring of the clock.");
}
