// Rung {multi_head}: a question about two cards. One head makes one mixture, which lies on one card at most; two heads make two.

function play(stage, { friends, cards, questions }) {
  const place = (friend) => stage.fit(95, 41) + stage.fit(150, 82) * friend; // the friends, from left to right
  const [left, unit, line] = stage.fit([60, 58, 216], [29, 30, 216]); // the line of numbers
  const center = stage.width / 2;
  const x = (card) => left + unit * card;
  const [cell, row, rows, apartBy] = stage.fit([36, 19, 344, 146], [24, 44, 366, 82]); // the maps
  const colours = ["var(--weight)", "var(--second)"];
  const heads = [0, 1];
  const shares = [0.5, 0.5]; // what each head gives to the first name; the second name gets the rest
  let split = false;
  let asked = 0; // which of the questions
  let looked = null; // the friend that is pointed at

  const weightsFor = ([first, second], share) => friends.map((_, friend) => (friend === first ? share : friend === second ? 1 - share : 0));
  const output = (head) => dot(weightsFor(questions[asked], shares[head]), cards);
  const nameOf = (head) => (split ? `head ${head}` : "the head");
  const atWork = () => heads.slice(0, split ? 2 : 1);

  // Painted from back to front: beams from the question to the friends, and from their cards to the rings.
  const beamsOf = (head) => friends.map(() => svg(stage.svg, "path", { fill: "none", stroke: colours[head], "stroke-linecap": "round" }));
  const [asking, pouring] = [heads.map(beamsOf), heads.map(beamsOf)];
  const outline = { fill: "var(--paper)", stroke: "var(--query)", "stroke-width": 2 };
  svg(stage.svg, "rect", { x: center - 105, y: 8, width: 210, height: 34, rx: 17, ...outline });
  const query = svg(stage.svg, "text", { x: center, y: 25, class: "strong" });
  for (const [word, x, y] of stage.fit([["query", 205, 25], ["keys", 46, 112], ["values", 46, 146]], [["query", 52, 25]])) {
    svg(stage.svg, "text", { x, y, class: "small muted end" }, word);
  }
  friends.forEach((name, friend) => {
    const chip = svg(stage.svg, "g");
    svg(chip, "rect", { x: place(friend) - stage.fit(40, 34), y: 98, width: stage.fit(80, 68), height: 28, rx: 6, ...outline, stroke: "var(--key)" });
    svg(chip, "text", { x: place(friend), y: 112 }, name);
    svg(chip, "rect", { x: place(friend) - 16, y: 126, width: 32, height: 40, rx: 5, ...outline, stroke: "var(--mix)" });
    svg(chip, "text", { x: place(friend), y: 147, class: "strong", style: "font-size: 20px" }, cards[friend]);
    stage.point(chip, friend, `${name} holds ${cards[friend]}`, (found) => {
      looked = found;
      stage.paint(stage.shown, stage.before);
      describe();
    });
  });
  const shown = heads.map(() => friends.map((_, friend) => {
    return svg(stage.svg, "text", { y: 88, class: `small halo ${friend < 2 ? "end" : "start"}` });
  }));

  svg(stage.svg, "line", { x1: x(0), x2: x(9), y1: line, y2: line, stroke: "var(--muted)" });
  for (let card = 0; card <= 9; card++) svg(stage.svg, "text", { x: x(card), y: line + 25, class: "small muted" }, card);
  // The cards that are asked for, marked below the line, each with what is found of it.
  const marks = [0, 1].map(() => {
    const mark = svg(stage.svg, "g");
    svg(mark, "path", { d: `M-6 ${line + 46}h12l-6 -9z`, fill: "var(--query)" });
    return { mark, lines: [57, 75].map((y) => svg(mark, "text", { y: line + y })) };
  });
  const pill = { x: -28, y: line - 14, width: 56, height: 28, rx: 14, fill: "var(--paper)", stroke: "var(--mix)", "stroke-width": 3 };
  const ghost = svg(stage.svg, "rect", { ...pill, fill: "none", stroke: "var(--faint)" }); // the one mixture
  const rings = heads.map((head) => {
    const ring = svg(stage.svg, "g");
    if (stage.narrow) svg(ring, "rect", { x: -28, y: line - 22, width: 56, height: 44, fill: "transparent" });
    svg(ring, "rect", pill);
    svg(ring, "text", { y: line, class: "small strong" });
    const [first, second] = [() => cards[questions[asked][0]], () => cards[questions[asked][1]]];
    stage.drag(ring, `output of head ${head}`, {
      at: () => [x(output(head)), line],
      move: (px) => {
        const share = ((px - left) / unit - second()) / (first() - second());
        shares[head] = Math.max(0, Math.min(1, Math.round(20 * share) / 20));
        update(0);
      },
      tell: () => number(output(head)),
      step: () => (unit * Math.abs(first() - second())) / 20,
    });
    return ring;
  });

  // The maps: a row for each question, a column for each friend.
  const maps = heads.map((head) => {
    const map = svg(stage.svg, "g");
    const titles = stage.fit([30], [46, 30]).map((above) => svg(map, "text", { x: stage.fit(2 * cell, 18), y: rows - above, class: stage.fit("", "small") }));
    svg(map, "text", { x: -8, y: rows - 11, class: "small muted end" }, "query");
    friends.forEach((name, friend) => svg(map, "text", { x: cell * (friend + 0.5), y: rows - 11, class: "small muted" }, stage.fit(name, name[0])));
    const mark = svg(map, "rect", {
      x: -2, width: 4 * cell + 4, height: row + 3, fill: "none", stroke: "var(--query)", "stroke-width": 3, "pointer-events": "none",
    });
    const cells = questions.map((pair, question) => {
      const entry = svg(map, "g", { class: "pointable", role: "radio", "aria-label": pair.map((friend) => friends[friend]).join(", ") });
      if (head === 0) entry.setAttribute("tabindex", 0); // the rows of the other map are the same questions
      svg(entry, "text", { x: -8, y: rows + row * (question + 0.5), class: "small end" }, entry.getAttribute("aria-label"));
      entry.addEventListener("click", () => ask(question));
      entry.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        ask(question);
      });
      return friends.map((_, friend) => {
        const place = { x: cell * friend + 1, y: rows + row * question + 1, width: cell - 2, height: row - 2 };
        if (!friend && stage.narrow) svg(entry, "rect", { x: -60, y: rows + row * question, width: 60 + 4 * cell, height: row, fill: "transparent" });
        svg(entry, "rect", { ...place, fill: "var(--panel)" });
        const fill = svg(entry, "rect", { ...place, fill: colours[head] });
        return { fill, label: svg(entry, "text", { x: cell * (friend + 0.5), y: rows + row * (question + 0.5), class: "small" }) };
      });
    });
    map.append(mark);
    return { map, titles, mark, cells };
  });

  stage.paint = ({ apart, weights, outputs, targets, chosen, tables }, before) => {
    set(ghost, { transform: `translate(${x(before.outputs[0])} 0)`, visibility: before.apart < apart ? "visible" : "hidden" });
    const faded = (friend) => (looked === null || looked === friend ? 1 : 0.2);
    for (const head of heads) {
      const aside = apart * (head ? 1 : -1); // head 0 goes to the left, head 1 to the right
      const hidden = head && !apart ? "none" : "";
      friends.forEach((_, friend) => {
        const [weight, from, to] = [weights[head][friend], place(friend), x(outputs[head])];
        const thick = { "stroke-width": 9 * weight, opacity: (head ? apart : 1) * (weight ? 0.75 : 0) * faded(friend) };
        const [asker, gate] = [center + 22 * aside, from + 5 * aside];
        set(asking[head][friend], { ...thick, d: `M${asker} 42 C${asker} 74 ${gate} 62 ${gate} 98` });
        set(pouring[head][friend], { ...thick, d: `M${gate} 166 C${gate} 192 ${to} 184 ${to} ${line}` });
        const off = head && weights[0][friend] >= 0.005 ? 46 : 12; // away from the beam, and from head 0's weight
        set(shown[head][friend], { x: from + (friend < 2 ? -off : off), opacity: faded(friend) });
        shown[head][friend].textContent = weight < 0.005 || (head && !apart) ? "" : weight.toFixed(2);
        tables[head].forEach((table, question) => {
          const { fill, label } = maps[head].cells[question][friend];
          set(fill, { opacity: 0.55 * table[friend] * faded(friend) });
          label.textContent = table[friend] < 0.005 ? "" : stage.fit(number(table[friend]), number(table[friend]).replace("0.", "."));
        });
      });
      rings[head].setAttribute("transform", `translate(${x(outputs[head])} 0)`);
      rings[head].lastChild.textContent = split ? outputs[head].toFixed(2) : `‹ ${outputs[head].toFixed(2)} ›`;
      maps[head].map.setAttribute("transform", `translate(${stage.fit(276, 148) + apartBy * aside} 0)`);
      maps[head].mark.setAttribute("y", rows + row * chosen - 1.5);
      maps[head].map.style.display = hidden;
      set(marks[head].mark, { transform: `translate(${x(targets[head])} 0)` });
    }
  };

  const isRight = (head, answer) => Math.abs(output(head) - cards[questions[asked][answer]]) < 1e-9;
  const answeredBy = (answer) => (split ? answer : 0); // the head that is asked for it

  const describe = () => {
    const names = questions[asked].map((friend) => friends[friend]);
    if (looked !== null) {
      const parts = atWork().map((head) => {
        const weight = weightsFor(questions[asked], shares[head])[looked];
        const poured = (weight * cards[looked]).toFixed(2);
        return `${nameOf(head)}: weight ${weight.toFixed(2)} · card ${cards[looked]} = ${poured}`;
      });
      return stage.say(`${friends[looked]}, ${parts.join("; ")}.`);
    }
    const right = [0, 1].map((answer) => isRight(answeredBy(answer), answer));
    const found = atWork().map((head) => output(head).toFixed(2)).join(" and ");
    if (split) {
      const verdict = right.every(Boolean) ? "so both cards are found" : "and you can drag each to the card that it should find";
      return stage.say(`Two heads have weights of their own and make two mixtures, ${found}, ${verdict}.`);
    }
    const which = right.indexOf(true);
    stage.say(
      which < 0
        ? `One head has one row of weights and makes one mixture, ${found}. That is neither ${names[0]}'s card nor ${names[1]}'s. ` +
            "Drag the ring, and see whether it can lie on both."
        : `All the weight is on ${names[which]}, so that card is found and ${names[1 - which]}'s is missed. Now split the head in two.`,
    );
  };

  const ask = (question) => {
    asked = question;
    update();
  };

  const update = async (ms) => {
    const pair = questions[asked];
    if (!split) shares[1] = shares[0];
    const weights = shares.map((share) => weightsFor(pair, share));
    query.textContent = `${pair.map((friend) => friends[friend]).join(", ")}: which cards?`;
    pair.forEach((friend, answer) => {
      const right = isRight(answeredBy(answer), answer);
      // Two marks that are close share no room: one is written to the left, the other to the right.
      const apart = cards[friend] - cards[pair[1 - answer]];
      const side = Math.abs(apart) < 2 ? Math.sign(apart) : 0;
      const [name, verdict] = marks[answer].lines;
      for (const text of [name, verdict]) set(text, { x: -24 * side, class: ["end", "", "start"][side + 1] });
      name.textContent = `${friends[friend]}'s card`;
      verdict.textContent = right ? "✓ found" : "✗ missed";
      verdict.style.fill = right ? "var(--weight)" : "var(--wrong)";
    });
    maps.forEach(({ titles, cells }, head) => {
      const finds = shares[head] > 0.75 ? "it finds the first name" : shares[head] < 0.25 ? "it finds the second name" : "it mixes both";
      const lines = [`weights of ${nameOf(head)}`, finds];
      titles.forEach((title, at) => (title.textContent = stage.fit(lines.join(": "), lines[at])));
      cells.forEach(([{ fill }], question) => fill.parentNode.setAttribute("aria-checked", question === asked));
    });
    if (split && !rings[1].isConnected) stage.svg.append(rings[1]); // one that is held must stay where it is
    const outputs = heads.map(output);
    stage.publish({
      question: pair, weights: atWork().map((head) => weights[head]), outputs: atWork().map((head) => outputs[head]),
      right: pair.map((_, answer) => isRight(answeredBy(answer), answer)),
    });
    describe();
    await stage.show({
      apart: Number(split), weights, outputs, targets: pair.map((friend) => cards[friend]), chosen: asked,
      tables: shares.map((share) => questions.map((question) => weightsFor(question, share))),
    }, ms);
    if (!split) rings[1].remove();
  };

  stage.toggle("Split into two heads", false, (on) => {
    split = on;
    shares.splice(0, 2, ...(on ? [1, 0] : [0.5, 0.5]));
    update();
  });
  update(0);
}
