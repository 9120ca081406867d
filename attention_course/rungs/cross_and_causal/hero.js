// Rung {cross_and_causal}: the notebook's encoder-decoder, at work in the page. It reads a date, 3 march 1998, and writes 1998-03-03.

// The model. A token is an array of its channels, a sequence is an array of tokens, `p` holds the parameters.

// A parameter as rows of numbers. It is stored as bytes, integers from -127 to 127, times a scale.
function matrix({ rows, scale, integers }) {
  const numbers = Array.from(atob(integers), (byte) => ((byte.charCodeAt(0) << 24) >> 24) * scale);
  const columns = numbers.length / rows;
  return Array.from({ length: rows }, (_, row) => numbers.slice(row * columns, (row + 1) * columns));
}

const plus = (a, b) => a.map((value, channel) => value + b[channel]);
const linear = (token, weight) => weight.map((row) => dot(row, token));
const embed = (p, part, ids) => ids.map((id, t) => plus(p[`${part}.character.weight`][id], p[`${part}.position.weight`][t]));

// One head: queries from x, keys and values from the context. In self-attention both are the same tokens.
function attend(p, name, x, context, mayLook) {
  const project = (tokens, part) => tokens.map((token) => linear(token, p[`${name}.${part}.weight`]));
  const [q, k, v] = [project(x, "query"), project(context, "key"), project(context, "value")];
  const score = (t, s) => (mayLook(t, s) ? dot(q[t], k[s]) / Math.sqrt(k[s].length) : -Infinity);
  const weights = q.map((_, t) => softmax(k.map((_, s) => score(t, s))));
  const found = weights.map((row) => v[0].map((_, channel) => sum(row.map((weight, s) => weight * v[s][channel]))));
  return { found, weights };
}

// The encoder appends to each character what two heads find within two places of it.
function encode(p, source, covered) {
  const x = embed(p, "encoder", source);
  const near = (t, s) => Math.abs(t - s) <= 2 && !covered[s];
  const [first, second] = [0, 1].map((h) => attend(p, `encoder.heads.${h}`, x, x, near).found);
  return x.map((token, t) => [...token, ...first[t], ...second[t]]);
}

// The decoder looks at what is written, then at the source. Returns a logit for each character that may come next.
function decode(p, written, context, covered) {
  const y = embed(p, "decoder", written);
  const past = attend(p, "decoder.head", y, y, (t, s) => s <= t);
  const after = y.map((token, t) => plus(token, past.found[t]));
  const { found, weights } = attend(p, "decoder.cross", after, context, (t, s) => !covered[s]);
  const layer = (name, token) => plus(linear(token, p[`${name}.weight`]), p[`${name}.bias`].flat());
  const wide = layer("decoder.feed_forward.0", plus(after.at(-1), found.at(-1)));
  const rectified = wide.map((value) => Math.max(0, value));
  return { logits: layer("decoder.feed_forward.2", rectified), weights };
}

// Ten characters, each the one with the highest logit. `covered[s]` hides the character at s from everyone.
function rewrite(p, characters, text, covered) {
  const context = encode(p, [...text].map((character) => characters.indexOf(character)), covered);
  const ids = [characters.indexOf(">")];
  let step;
  for (let t = 0; t < 10; t++) {
    step = decode(p, ids, context, covered);
    ids.push(step.logits.indexOf(Math.max(...step.logits)));
  }
  return { written: ids.slice(1).map((id) => characters[id]).join(""), weights: step.weights };
}

// The picture.

const LONGEST = 17; // characters of a date, "30 september 1998"
const PARTS = [["year", 0, 4], ["month", 5, 7], ["day", 8, 10]]; // of what is written
const SHOWN = 0.05; // smaller weights are not put into words

const quoted = (characters) => `“${characters}”${characters === " " ? " (a space)" : ""}`;
const partOf = (t) => PARTS.find(([, from, to]) => t >= from && t < to)?.[0];

function play(stage, { characters, months, dates, parameters }) {
  const p = Object.fromEntries(Object.entries(parameters).map(([name, stored]) => [name, matrix(stored)]));
  const last = 11; // steps 1 to 10 write a character each, the last one shows them all
  const [most, tall, top] = stage.fit([34, 36, 24], [27, 44, 42]); // of the source, in pixels
  const [wide, box, left, bottom] = stage.fit([42, 38, 110, 226], [32.6, 30, 1, 236]); // of what is written
  const broad = 26; // the beams of one character together: a weight of 1
  let text, target, covered, run; // the date, how it should be written, what is covered, what the model does
  let seen; // how many steps are done
  let looked = null; // { t }, a written character, or { s }, one of the source
  let stroke; // while the mouse covers characters: where it began, and whether it covers or uncovers

  const wrong = (t) => run.written[t] !== target[t];
  const pitchOf = (n) => Math.min(most, stage.width / n); // from one character of the source to the next
  const place = (n, s) => stage.width / 2 + pitchOf(n) * (s - n / 2 + 0.5); // the middle of character s of n

  // Painted from back to front: labels, beams, source, what is written.
  const label = (x, y, text, align) => svg(stage.svg, "text", { x, y, class: `small ${align ?? "muted"}` }, text);
  const words = ["day", "month", "year"].map((name) => label(0, top - 14, name));
  label(2, stage.fit(10, 8), "it reads", "start");
  label(2, bottom + stage.fit(box / 2, -14), "it writes", "start halo");
  const should = label(2, bottom + stage.fit(98, 117), "it should be", "start");
  for (const [name, from, to] of PARTS) {
    label(left + (wide * (from + to)) / 2, bottom + 61, name);
    svg(stage.svg, "path", { d: `M${left + wide * from + 4} ${bottom + 50}h${wide * (to - from) - 8}`, stroke: "var(--faint)" });
  }
  const beam = { fill: "none", stroke: "var(--weight)", pathLength: 1 };
  const beams = Array.from({ length: 10 }, () => Array.from({ length: LONGEST }, () => svg(stage.svg, "path", beam)));
  const cell = most - stage.fit(4, 3);
  const slant = (at, from, to) => `M${from} ${at - from}L${to} ${at - to}`; // x + y = at
  const hatching = [8, 16, 24, 32, 40, 48, 56].map((at) => slant(at, Math.max(0, at - tall), Math.min(cell, at))).join("");
  const sources = Array.from({ length: LONGEST }, (_, s) => {
    const group = svg(stage.svg, "g", { class: "pointable movable", tabindex: 0, role: "switch" });
    const square = { x: -cell / 2, y: top, width: cell, height: tall, rx: 4 };
    svg(group, "rect", { ...square, fill: "var(--paper)", stroke: "var(--faint)" });
    const lid = svg(group, "g");
    svg(lid, "rect", { ...square, fill: "var(--faint)" });
    svg(lid, "path", { d: hatching, transform: `translate(${-cell / 2} ${top})`, stroke: "var(--muted)", "stroke-width": 1.5 });
    const letter = svg(group, "text", { y: top + tall / 2, class: "code strong" });
    letter.style.fontSize = "18px";
    for (const begin of ["pointerenter", "focus"]) group.addEventListener(begin, () => look({ s }));
    for (const end of ["pointerleave", "blur"]) group.addEventListener(end, () => look(stage.pinned?.key ?? null));
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      cover(s, s, !covered[s]);
    });
    group.addEventListener("pointerdown", (event) => {
      group.setPointerCapture(event.pointerId);
      stroke = { from: s, on: !covered[s] };
      cover(s, s, stroke.on);
    });
    group.addEventListener("pointermove", (event) => {
      if (!stroke) return;
      const [x] = stage.place(event);
      const at = Math.floor((x - place(text.length, -0.5)) / pitchOf(text.length));
      cover(stroke.from, Math.max(0, Math.min(text.length - 1, at)), stroke.on);
    });
    for (const end of ["pointerup", "pointercancel"]) group.addEventListener(end, () => (stroke = undefined));
    return { group, lid, letter };
  });
  const outputs = Array.from({ length: 10 }, (_, t) => {
    const group = svg(stage.svg, "g", { transform: `translate(${left + wide * (t + 0.5)} ${bottom})` });
    svg(group, "rect", { x: -box / 2, width: box, height: 105, fill: "transparent" }); // down to its mark
    const frame = svg(group, "rect", { x: -box / 2, width: box, height: 42, rx: 4, fill: "var(--paper)" });
    const letter = svg(group, "text", { y: 21, class: "code strong" });
    letter.style.fontSize = "20px";
    const mark = svg(group, "text", { y: 79, class: "strong" });
    const right = svg(group, "text", { y: 98, class: "code" });
    stage.point(group, { t }, `written character ${t + 1}`, (key) => look(key));
    return { frame, letter, mark, right };
  });

  stage.paint = ({ n, weights, reach, strength, lids }) => {
    weights.forEach((row, t) => {
      let x = left + wide * (t + 0.5) - broad / 2; // the beams of one character start side by side
      row.forEach((weight, s) => {
        const width = broad * weight;
        const [from, to] = [x + width / 2, place(n, s)];
        x += width;
        set(beams[t][s], {
          d: `M${from} ${bottom}C${from} ${bottom - 90} ${to} ${top + 126} ${to} ${top + tall}`,
          "stroke-width": width,
          "stroke-dasharray": `${reach[t]} 2`,
          opacity: strength[t][s],
          visibility: width > 0.15 && reach[t] > 0 ? "visible" : "hidden",
        });
      });
      for (const text of [outputs[t].letter, outputs[t].mark, outputs[t].right]) text.style.opacity = reach[t];
    });
    sources.forEach((source, s) => {
      const narrower = Math.min(1, pitchOf(n) / most);
      set(source.group, { transform: `translate(${place(n, s)} 0)${narrower < 1 ? ` scale(${narrower} 1)` : ""}` });
      source.lid.style.opacity = lids[s];
    });
  };

  // Is something looked at that has beams? Then these are bright; or else those of the newest character, or else all.
  const looking = () => looked && (looked.t < seen || (looked.s < text.length && !covered[looked.s]));
  const strengthOf = (t, s) => {
    if (looking()) return looked.t === t || looked.s === s ? 0.75 : 0.05;
    if (seen === last) return 0.3;
    return t === seen - 1 ? 0.75 : 0.12;
  };

  // The words.
  const describeWritten = (t) => {
    const found = run.weights[t].map((weight, s) => ({ weight, s })).filter(({ weight }) => weight >= SHOWN);
    const most = found.sort((a, b) => b.weight - a.weight).slice(0, 3);
    const list = most.map(({ weight, s }) => `${quoted(text[s])} ${number(weight)}`);
    const looks = list.length ? `looks at ${list.join(", ")}` : "has nothing to look at";
    const fault = wrong(t) ? ` ✗ It should be ${quoted(target[t])}.` : "";
    return `${quoted(run.written[t])} (${partOf(t) ? `the ${partOf(t)}` : "a dash"}) ${looks}.${fault}`;
  };
  const describeSource = (s) => {
    const readers = run.weights.map((row, t) => ({ weight: row[s], t })).filter(({ weight, t }) => weight >= SHOWN && t < seen);
    const most = readers.sort((a, b) => b.weight - a.weight).slice(0, 4);
    const list = most.map(({ weight, t }) => `${quoted(run.written[t])} (${partOf(t) ?? "dash"}) ${number(weight)}`);
    if (readers.length > 4) list.push(`and ${readers.length - 4} more`);
    const lookedAt = list.length ? `is looked at by ${list.join(", ")}` : `is hardly looked at${seen < last ? " so far" : ""}`;
    return `${quoted(text[s])} ${lookedAt}. Click to cover it.`;
  };
  const describeAll = () => {
    const faults = PARTS.map(([name, ...ends]) => [name, run.written.slice(...ends), target.slice(...ends)])
      .filter(([, written, right]) => written !== right)
      .map(([name, written, right]) => `${name} ${written}, not ${right}`);
    const end = faults.length ? `✗ It writes ${run.written}: ${faults.join("; ")}.` : `✓ It writes ${run.written}.`;
    const hidden = [...text].map((character, s) => (covered[s] ? character : "…")).join("").replace(/…+/g, "…");
    if (covered.every(Boolean)) return `Everything is covered. ${end} With nothing to read, it can only guess.`;
    const guess = faults.length ? " It guesses what it can't read." : "";
    if (covered.some(Boolean)) return `Covered: ${quoted(hidden.replace(/^…|…$/g, ""))}. ${end}${guess}`;
    return `${end} Point at a character to see what it looks at. To see it guess, cover the month: press the button, or drag over it.`;
  };

  const update = () => {
    const n = text.length;
    const weights = run.weights.map((row) => [...row, ...Array(LONGEST - n).fill(0)]);
    const strength = weights.map((row, t) => row.map((_, s) => strengthOf(t, s)));
    const reach = weights.map((_, t) => Number(t < seen));
    const lids = weights[0].map((_, s) => Number(covered[s] ?? false));
    sources.slice(0, n).forEach(({ group, letter }, s) => {
      set(group, { "aria-checked": covered[s], "aria-label": `cover character ${s + 1}: ${text[s]}` });
      letter.textContent = text[s];
      letter.style.opacity = covered[s] ? 0.4 : 1;
    });
    sources.forEach(({ group }, s) => set(group, { visibility: s < n ? "visible" : "hidden" }));
    outputs.forEach(({ frame, letter, mark, right }, t) => {
      const chosen = looking() ? looked.t === t : t === seen - 1;
      set(frame, { stroke: chosen ? "var(--query)" : "var(--faint)", "stroke-width": chosen ? 3 : 1 });
      set(frame, { "stroke-dasharray": t < seen ? "none" : "3 3" });
      letter.textContent = run.written[t];
      [mark.textContent, right.textContent] = wrong(t) ? ["✗", target[t]] : ["✓", ""];
      mark.style.fill = wrong(t) ? "var(--wrong)" : "var(--weight)";
      letter.style.fill = wrong(t) ? "var(--wrong)" : "var(--text)";
    });
    should.textContent = outputs.some((_, t) => t < seen && wrong(t)) ? "it should be" : "";
    [...text.matchAll(/\S+/g)].forEach(({ 0: word, index }, at) => set(words[at], { x: place(n, index + (word.length - 1) / 2) }));
    coverButton.textContent = covered.some(Boolean) ? "Uncover" : "Cover the month";
    stage.publish({ text, covered, seen, ...run });
    if (looking()) stage.say("t" in looked ? describeWritten(looked.t) : describeSource(looked.s));
    else if (seen === last) stage.say(describeAll());
    else if (seen) stage.say(describeWritten(seen - 1));
    else stage.say(`It has read ${text}. Now it writes the same date as year-month-day, one character after another. Press Step.`);
    return stage.show({ n, weights, reach, strength, lids });
  };

  const look = (at) => {
    looked = at;
    update();
  };
  const cover = (a, b, on) => {
    const changed = covered.map((lid, s) => (s >= Math.min(a, b) && s <= Math.max(a, b) ? on : lid));
    if (changed.every((lid, s) => lid === covered[s])) return;
    covered = changed;
    run = rewrite(p, characters, text, covered);
    player.stop();
    player.to(last);
  };
  const read = (date) => {
    const [day, month, year] = date.split(" ");
    text = date;
    target = [year, String(months.indexOf(month) + 1).padStart(2, "0"), day.padStart(2, "0")].join("-");
    covered = [...text].map(() => false);
    run = rewrite(p, characters, text, covered);
  };

  // A date that the model can read is written at once. Of another text, words say what is wrong, and the last date stays.
  const typed = async () => {
    const date = input.value.toLowerCase().trim().replace(/\s+/g, " ");
    const [, month] = /^(?:[1-9]|[12]\d|3[01]) ([a-z]+) [1-9]\d{3}$/.exec(date) ?? [];
    const unknown = [...date].find((character) => character === ">" || !characters.includes(character));
    input.setAttribute("aria-invalid", !months.includes(month));
    if (!months.includes(month)) {
      stage.say(
        unknown
          ? `The model doesn't know ${quoted(unknown)}. It knows digits, spaces, and the letters in the names of the months.`
          : "It learned dates of one kind: the day, the month in English, a year from 1000 to 9999. For example: 3 march 1998.",
      );
    } else if (date !== text) {
      player.stop();
      read(date);
      await player.to(0);
      for (let step = 1; step <= last && text === date && seen === step - 1; step++) await player.to(step);
    } else update();
  };

  const player = stage.player(last, (step) => {
    seen = step;
    return update();
  });
  const coverButton = stage.button("Cover the month", () => {
    const [from, to] = [text.indexOf(" ") + 1, text.lastIndexOf(" ") - 1];
    if (covered.some(Boolean)) cover(0, text.length - 1, false);
    else cover(from, to, true);
  });
  const above = html(stage.figure, "div", { class: "controls" });
  stage.figure.insertBefore(above, stage.svg.parentNode);
  const input = html(html(above, "label", {}, "Your date: "), "input", { size: 17, value: dates[0], spellcheck: false });
  input.addEventListener("input", typed);
  above.append(
    stage.button("Another date", () => {
      input.value = dates[(dates.indexOf(text) + 1) % dates.length];
      typed();
    }),
  );
  read(dates[0]);
  player.to(4);
  stage.say(`It has read ${text}, and has written its year. Press Play: where will it look for the month?`);
}
