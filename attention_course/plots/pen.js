// A pen for where there is no canvas: it writes down in SVG what panels.js (which stands below this file) draws. So
// each kind of panel is drawn by one piece of code, in the browser and in the pictures that Python makes.

const round = (value) => Math.round(100 * value) / 100;

class Pen {
  constructor() {
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "12px sans-serif" });
    this.shapes = []; // in the order of drawing: tag, attributes, colours of filling and line, text
    this.dashes = [];
    this.turned = ""; // the transform in force
  }
  add(tag, attributes, { fill, stroke, text = "", kind = [] }) {
    if (stroke) attributes += ` stroke-width="${this.lineWidth}"`;
    if (stroke && this.dashes.length) attributes += ` stroke-dasharray="${this.dashes.join(" ")}"`;
    if (this.globalAlpha < 1) attributes += ` opacity="${round(this.globalAlpha)}"`;
    if (this.turned) attributes += ` transform="${this.turned}"`;
    this.shapes.push({ tag, attributes, colours: { fill, stroke }, text, kind });
  }
  measureText(text) {
    return { width: widthOf(text) * parseFloat(this.font) }; // widthOf is Python's, in font sizes
  }
  fillText(text, x, y) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const kind = this.font.includes("monospace") ? ["code"] : [];
    const attributes = `x="${round(x)}" y="${round(y)}" font-size="${parseFloat(this.font)}" text-anchor="${anchor}"`;
    this.add("text", attributes, { fill: this.fillStyle, text, kind });
  }
  box(x, y, width, height) {
    return `d="M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}z"`;
  }
  fillRect(...sides) {
    this.add("path", this.box(...sides), { fill: this.fillStyle });
  }
  strokeRect(...sides) {
    this.add("path", this.box(...sides), { stroke: this.strokeStyle });
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
  // As a canvas does: clockwise, or the other way round if `back`. SVG draws no arc that ends where it began: two halves.
  arc(x, y, radius, from, to, back = false) {
    const whole = 2 * Math.PI;
    const turn = to - from >= whole ? whole : ((((back ? from - to : to - from) % whole) + whole) % whole) * (back ? -1 : 1);
    const point = (angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)].map(round).join(" ");
    this.lineTo(x + radius * Math.cos(from), y + radius * Math.sin(from));
    for (const share of [0.5, 1]) this.path += `A${radius} ${radius} 0 0 ${Number(turn > 0)} ${point(from + share * turn)}`;
  }
  closePath() {
    this.path += "Z";
  }
  fill() {
    this.add("path", `d="${this.path}"`, { fill: this.fillStyle });
  }
  stroke() {
    this.add("path", `d="${this.path}"`, { stroke: this.strokeStyle });
  }
  setLineDash(dashes) {
    this.dashes = dashes;
  }
  save() {}
  translate(x, y) {
    this.turned = `translate(${round(x)} ${round(y)})`;
  }
  rotate(angle) {
    this.turned += `rotate(${round((angle * 180) / Math.PI)})`;
  }
  restore() {
    this.turned = "";
  }
}

const document = { createElement: () => ({ getContext: () => new Pen() }) }; // all that panels.js asks of a page

const WIDEST = 640; // CSS pixels of a row of panels
const [BESIDE, BELOW] = [20, 10]; // pixels between panels
const TITLE = 24; // pixels above a panel

const escaped = (text) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);

// One panel: its shapes in both themes, where its title is centred, and the room that it takes.
function drawn(panel, themes) {
  const kind = KINDS[panel.kind];
  const [width, height] = kind.size(panel, themes[0]);
  const [light, dark] = themes.map((theme) => {
    const pen = new Pen();
    kind.draw(pen, panel, [width, height], theme);
    return pen.shapes;
  });
  const centre = (width + (kind.off?.(panel, themes[0]) ?? 0)) / 2;
  const half = widest([panel.title], themes[0].font(15)) / 2; // of 13, in bold
  const left = Math.max(0, half - centre);
  return { title: panel.title, light, dark, centre, left, width: left + Math.max(width, centre + half), height: height + TITLE };
}

// Panels side by side, in as many rows as it takes. Shapes are the same in light and in dark; each pair of colours
// becomes a class, so that the picture follows the scheme of the page that shows it.
function still(panels) {
  const themes = [false, true].map((dark) => themeIn(dark, (_, otherwise) => otherwise));
  const rules = new Map(); // for each pair of colours the name of its class, and what it says in light and in dark
  const classOf = (property, ...pair) => {
    const [light, dark] = pair.map((colour) => `{${property}:${colour}}`);
    if (!rules.has(light + dark)) rules.set(light + dark, { name: `c${rules.size}`, light, dark });
    return rules.get(light + dark).name;
  };
  const written = [];
  let [x, y, right, bottom] = [0, 0, 0, 0];
  for (const panel of panels.map((panel) => drawn(panel, themes))) {
    if (x > 0 && x + panel.width > WIDEST) [x, y] = [0, bottom + BELOW];
    written.push(`<g transform="translate(${round(x + panel.left)} ${round(y + TITLE)})">`);
    const text = classOf("fill", themes[0].text, themes[1].text);
    written.push(`<text class="title ${text}" x="${round(panel.centre)}" y="${10 - TITLE}">${escaped(panel.title)}</text>`);
    panel.light.forEach(({ tag, attributes, colours, text, kind }, index) => {
      const inks = ["fill", "stroke"].filter((ink) => colours[ink]);
      const classes = [...kind, ...inks.map((ink) => classOf(ink, colours[ink], panel.dark[index].colours[ink]))];
      written.push(`<${tag} class="${classes.join(" ")}" ${attributes}>${escaped(text)}</${tag}>`);
    });
    written.push("</g>");
    [right, bottom] = [Math.max(right, x + panel.width), Math.max(bottom, y + panel.height)];
    x += panel.width + BESIDE;
  }
  const style = [
    "path{fill:none}text{font-family:system-ui,sans-serif;dominant-baseline:central;white-space:pre}",
    ".title{font-size:13px;font-weight:600;text-anchor:middle}.code{font-family:monospace}",
    ...[...rules.values()].map(({ name, light }) => `.${name}${light}`),
    "@media (prefers-color-scheme:dark){",
    ...[...rules.values()].map(({ name, dark }) => `.${name}${dark}`),
    "}",
  ];
  const [width, height] = [right, bottom].map(Math.ceil);
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return [`<svg xmlns="http://www.w3.org/2000/svg" ${size}><style>`, ...style, "</style>", ...written, "</svg>"].join("");
}
