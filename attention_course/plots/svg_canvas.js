// What panels.js, which stands below this file, needs where there is no browser: a pen with the methods of a canvas's,
// which writes SVG. So each kind of panel is drawn by one piece of code, on a page that is alive and in a picture.

const round = (value) => Math.round(100 * value) / 100;
const BAD = /\p{Cc}|\p{Cs}|[\ufffe\uffff]/gu; // what XML forbids: control characters, lone surrogates, no characters
const escaped = (text) => text.replace(BAD, "�").replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);

// An element of SVG, without the attributes that are empty.
function tag(name, attributes, content = "") {
  const given = Object.entries(attributes).filter(([, value]) => value || value === 0);
  const written = given.map(([key, value]) => ` ${key}="${typeof value === "number" ? round(value) : value}"`).join("");
  return content ? `<${name}${written}>${content}</${name}>` : `<${name}${written}/>`;
}

class Pen {
  shapes = []; // in the order of drawing
  lineWidth = 1;
  globalAlpha = 1;
  dashes = "";
  transform = "";

  add(name, attributes, colours, text) {
    const stroke = colours.stroke && { "stroke-width": this.lineWidth, "stroke-dasharray": this.dashes };
    const opacity = this.globalAlpha < 1 && this.globalAlpha;
    this.shapes.push({ name, attributes: { ...attributes, ...stroke, opacity, transform: this.transform }, colours, text });
  }
  fillText(text, x, y) {
    const [size, family] = [parseFloat(this.font), this.font.includes("monospace") && "monospace"];
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const attributes = { x, y, "font-size": size, "font-family": family, "text-anchor": anchor };
    this.add("text", attributes, { fill: this.fillStyle }, escaped(text));
  }
  rect(x, y, width, height) {
    this.path = `M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}z`;
  }
  fillRect(...box) {
    this.rect(...box);
    this.fill();
  }
  strokeRect(...box) {
    this.rect(...box);
    this.stroke();
  }
  beginPath() {
    this.path = "";
  }
  moveTo(x, y) {
    this.path += `M${round(x)} ${round(y)}`;
  }
  lineTo(x, y) {
    this.path += `${this.path ? "L" : "M"}${round(x)} ${round(y)}`;
  }
  // Clockwise, or the other way round. In two halves, because SVG draws no arc that ends where it began.
  arc(x, y, radius, from, to, counterclockwise = false) {
    const whole = 2 * Math.PI;
    const sign = counterclockwise ? -1 : 1;
    const turn = to - from >= whole ? whole : (((sign * (to - from)) % whole) + whole) % whole;
    const point = (angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
    this.lineTo(...point(from));
    for (const part of [0.5, 1]) {
      const end = point(from + sign * part * turn).map(round);
      this.path += `A${radius} ${radius} 0 0 ${counterclockwise ? 0 : 1} ${end.join(" ")}`;
    }
  }
  closePath() {
    this.path += "z";
  }
  fill() {
    this.add("path", { d: this.path }, { fill: this.fillStyle });
  }
  stroke() {
    this.add("path", { d: this.path }, { stroke: this.strokeStyle });
  }
  setLineDash(dashes) {
    this.dashes = dashes.join(" ");
  }
  translate(x, y) {
    this.transform += `translate(${round(x)} ${round(y)})`;
  }
  rotate(angle) {
    this.transform += `rotate(${round((180 * angle) / Math.PI)})`;
  }
  save() {
    this.saved = this.transform; // panels.js changes nothing else in between
  }
  restore() {
    this.transform = this.saved;
  }
}

const WIDEST = 840; // pixels of a row of panels
const [BESIDE, BELOW] = [12, 10]; // pixels between panels
const TITLE = { "font-size": 13, "font-weight": 600, "text-anchor": "middle" };
const LINE = 17; // pixels of a line of a title

// A title in lines that are no wider than this, if its words are not.
function broken(title, width) {
  const lines = [""];
  for (const word of title.split(/(?<= )(?=[^ ])/)) {
    const longer = lines[lines.length - 1] + word;
    if (longer === word || widest([longer], AS_WIDE) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// A title in as many lines as it takes, as even as they can be.
function linesOf(title, width) {
  let lines = broken(title, width);
  for (let room = width - 10; room > 0; room -= 10) {
    const narrower = broken(title, room);
    if (narrower.length > lines.length) break;
    lines = narrower;
  }
  return lines;
}

// The shapes of a panel in each theme, the lines of its title, and the room that they take.
function drawn(panel, themes, kinds) {
  const kind = kinds[panel.kind];
  const [width, height] = kind.size(panel);
  const shapes = themes.map((theme) => {
    const pen = new Pen();
    kind.draw(pen, panel, [width, height], theme);
    return pen.shapes;
  });
  const lines = linesOf(panel.title, width + BESIDE);
  const middle = (width + (kind.off?.(panel) ?? 0)) / 2; // of the plot, and of the title above it
  const half = widest(lines, AS_WIDE) / 2;
  const left = Math.max(0, half - middle);
  return { shapes, lines, middle, left, width: left + Math.max(width, middle + half), height };
}

// Panels side by side, in as many rows as it takes. Shapes are the same in light and in dark; a colour in one and that
// in the other make a class, and so the picture follows the scheme of the page that shows it.
function svgOf(panels, kinds = KINDS) {
  const themes = [false, true].map((dark) => themeIn(dark, (_, otherwise) => otherwise));
  const classes = new Map();
  const classOf = (property, colours) => {
    const rules = colours.map((colour) => `{${property}:${colour}}`).join("|");
    if (!classes.has(rules)) classes.set(rules, `c${classes.size}`);
    return classes.get(rules);
  };
  const rulesOf = (scheme) => [...classes].map(([rules, name]) => `.${name}${rules.split("|")[scheme]}`).join("");

  const all = panels.map((panel) => drawn(panel, themes, kinds));
  const head = LINE * Math.max(...all.map(({ lines }) => lines.length)) + 7; // above a panel
  const ink = classOf("fill", themes.map((theme) => theme.text));
  const groups = [];
  let [x, y, right, bottom] = [0, 0, 0, 0];
  for (const { shapes: [light, dark], lines, middle, left, width, height } of all) {
    if (x > 0 && x + width > WIDEST) [x, y] = [0, bottom + BELOW];
    const title = lines.map((text, at) => tag("text", { class: ink, x: middle, y: LINE * (at - lines.length) + 3, ...TITLE }, escaped(text)));
    const parts = light.map(({ name, attributes, colours, text }, index) => {
      const names = Object.keys(colours).map((property) => classOf(property, [colours[property], dark[index].colours[property]]));
      return tag(name, { class: names.join(" "), ...attributes }, text);
    });
    groups.push(tag("g", { transform: `translate(${round(x + left)} ${round(y + head)})` }, [...title, ...parts].join("")));
    [right, bottom] = [Math.max(right, x + width), Math.max(bottom, y + head + height)];
    x += width + BESIDE;
  }
  const still = "text{dominant-baseline:central;white-space:pre}";
  const style = tag("style", {}, `${still}${rulesOf(0)}@media (prefers-color-scheme:dark){${rulesOf(1)}}`);
  const [width, height] = [right, bottom].map(Math.ceil);
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  const root = { xmlns: "http://www.w3.org/2000/svg", ...size, fill: "none", "font-family": "system-ui,sans-serif" };
  return tag("svg", root, style + groups.join(""));
}
