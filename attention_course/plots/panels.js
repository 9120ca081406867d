// The panels of attention_course.plots, each painted on a canvas of its own: a 64 x 64 heatmap takes about a
// millisecond, and a canvas painted at the screen's own resolution is sharp everywhere. COLOURS are those of colours.json.

// The markers of curves as corners; a circle has none.
const PLUS = [[-1.3, -0.45], [-0.45, -0.45], [-0.45, -1.3], [0.45, -1.3], [0.45, -0.45], [1.3, -0.45]];
PLUS.push(...PLUS.map(([x, y]) => [-x, -y]));
const MARKERS = [
  [],
  [[0, -1.2], [1.2, 1], [-1.2, 1]],
  [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
  PLUS,
  [[0, 1.2], [1.2, -1], [-1.2, -1]],
  PLUS.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2]),
];
const css = (rgb) => `rgb(${rgb.map(Math.round).join(",")})`;
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The colours and fonts of a light or a dark page; `value(name, otherwise)` asks the page for one of its own.
function themeIn(dark, value) {
  const inks = COLOURS[dark ? "dark" : "light"];
  return {
    ...inks,
    curves: ["blue", "green", "purple", "amber", "sky", "black"].map((name) => inks[name]),
    text: value("--jp-ui-font-color1", dark ? "#e4e4e4" : "#222222"),
    faint: value("--jp-border-color1", dark ? "#616161" : "#bbbbbb"),
    between: dark ? "#555" : "#e0e0e0",
    zero: dark ? [40, 40, 40] : [255, 255, 255],
    positive: rgb(inks.blue),
    negative: rgb(inks.orange),
    pale: dark ? "#4a5a66" : "#bfd4e0",
    font: (px) => `${px}px ${value("--jp-ui-font-family", "sans-serif")}`,
    code: (px) => `${px}px ${value("--jp-code-font-family", "monospace")}`,
  };
}

function themeOf(element) {
  const style = getComputedStyle(element);
  const value = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  return themeIn(document.body.dataset.jpThemeLight === "false", value);
}

// The colour of a value, given as a share of the one that has the full colour; NaN and infinities have none.
function shade(share, theme) {
  const ink = share < 0 ? theme.negative : theme.positive;
  const strength = Number.isFinite(share) ? Math.min(1, Math.abs(share)) : 0;
  return theme.zero.map((zero, channel) => zero + (ink[channel] - zero) * strength);
}

// The text colour that stands out from a cell: relative luminance as WCAG 2 defines it, split where black and white tie.
function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111" : "white";
}

// Numbers, which come as bytes to a browser, and as a list to svg_canvas.js.
const floats = (data) => new Float32Array(data.buffer?.slice(data.byteOffset, data.byteOffset + data.byteLength) ?? data);

function label(pen, text, x, y, align = "center") {
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(text, x, y);
}

// A label that is read from bottom to top, inside the canvas even where what it names is short.
function upright(pen, text, x, y) {
  pen.save();
  pen.translate(x, Math.max(y, widthOf(text, parseFloat(pen.font)) / 2 + 2));
  pen.rotate(-Math.PI / 2);
  label(pen, text, 0, 0);
  pen.restore();
}

// How wide the letters from space to ~ are in DejaVu Sans, which is wider than most, in 2048ths of the font's size.
// All geometry comes from these: what a reader's own fonts measured would move the picture from page to page.
const WIDTHS = [
  651, 821, 942, 1716, 1303, 1946, 1597, 563, 799, 799, 1024, 1716, 651, 739, 651, 690, 1303, 1303, 1303, 1303, 1303,
  1303, 1303, 1303, 1303, 1303, 690, 690, 1716, 1716, 1716, 1087, 2048, 1401, 1405, 1430, 1577, 1294, 1178, 1587, 1540,
  604, 604, 1343, 1141, 1767, 1532, 1612, 1235, 1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251, 1403, 799, 690,
  799, 1716, 1024, 1024, 1255, 1300, 1126, 1300, 1260, 721, 1300, 1298, 569, 569, 1186, 569, 1995, 1298, 1253, 1300,
  1300, 842, 1067, 803, 1298, 1212, 1675, 1212, 1212, 1075, 1303, 690, 1303, 1716,
];

// The room that a text takes, at most, in letters of this many pixels; signs and letters of other scripts count as wide.
function widthOf(text, px) {
  const widths = [...text].map((letter) => WIDTHS[letter.codePointAt() - 32] ?? (letter < "\u2e80" ? 1716 : 2048));
  return widths.reduce((total, width) => total + (px * width) / 2048, 0);
}
const widest = (texts, px) => Math.ceil(Math.max(0, ...texts.map((text) => widthOf(text, px))));

// Values in words, as plots.format_numbers writes them: all alike, and a tie, which only odd eighths are, goes to the
// even digit.
function numbers(values) {
  const whole = values.every((value) => !Number.isFinite(value) || (Number.isInteger(value) && Math.abs(value) < 1e6));
  return values.map((value) => {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "∞" : "−∞";
    const settled = Math.abs(8 * value) % 2 === 1 ? Math.round(50 * value) / 50 : value;
    const text = (whole ? String(value) : settled.toFixed(2)).replace("-", "−");
    return Math.abs(value) < 1e4 ? text : text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  });
}

// A place in words: its index, and its name where that says more.
const place = (label, index, name) => `${label} = ${index}` + (name === String(index) ? "" : ` “${name}”`);

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

function marker(pen, index, x, y) {
  const radius = 3.5;
  pen.beginPath();
  const corners = MARKERS[index % MARKERS.length];
  if (!corners.length) pen.arc(x, y, radius, 0, 2 * Math.PI);
  corners.forEach(([dx, dy]) => pen.lineTo(x + radius * dx, y + radius * dy));
  pen.closePath();
  pen.fill();
}

const textsOf = (panel) => (panel.texts.length ? panel.texts : numbers([...floats(panel.values)]));

// A row of a heatmap in words: its values, with the names of their columns where these are not numbers.
function rowOf(panel, row) {
  const { length } = panel.columns;
  if (length > 16) return `${length} values`;
  const texts = textsOf(panel).slice(row * length, (row + 1) * length);
  const named = panel.columns.every((name) => /^▲?\d+$/.test(name)) ? texts : texts.map((text, c) => `${panel.columns[c]} ${text}`);
  return named.join("  ");
}

// Where the names of the axes make three heatmaps a product, weights @ values = output: what a cell of the weights
// gives to the output, or of what a cell of the output is the sum. Empty for any other panel.
function product(panels, panel, { [panel.row_label]: row, [panel.column_label]: column }) {
  const maps = panels.filter(({ kind, grid_labels }) => kind === "Heatmap" && !grid_labels.length);
  const find = (rows, columns) => maps.find((map) => map.row_label === rows && map.column_label === columns);
  const at = (map, r, c) => textsOf(map)[r * map.columns.length + c];
  for (const map of maps) {
    const output = find(panel.row_label, map.column_label);
    if (map.row_label === panel.column_label && output)
      return `${at(panel, row, column)} × (${rowOf(map, column)}) is its part of ${output.row_label} = ${row}: (${rowOf(output, row)}).`;
    const values = find(map.column_label, panel.column_label);
    if (map.row_label === panel.row_label && values)
      return `${map.columns.map((_, s) => `${at(map, row, s)} × ${at(values, s, column)}`).join(" + ")} = ${at(panel, row, column)}.`;
  }
  return "";
}

// Every kind of panel: size(panel) in CSS pixels, draw(pen, panel, size, theme), and off(panel), twice how far the
// middle of its plot is right of the middle of its canvas, if it is. One whose cells can be read also has
// cells(panel): how many there are, the box of each, and what it says in words. And where they can be linked:
// the places of a cell, as { axis: index }, and for such places the boxes of what belongs to them, and their words.
const KINDS = {
  Heatmap: {
    margin: { top: 4, right: 6, bottom: 40 },
    left: ({ rows }) => Math.max(48, widest(rows, 11) + 28), // with the name of their axis
    gridded: 14, // pixels of a cell from which lines stand between two
    off(panel) {
      return this.left(panel) - this.margin.right;
    },
    // Width and height that are kept for any shape, so that nothing moves.
    most: { across: 36, few: 44, down: 28, all: 250, any: 62, tall: 250 }, // pixels of a cell (of few columns), of all, of a cell in any shape, of all rows
    shape({ reserved: [rows, columns], tile = [] }) {
      const { across, few, down, all, tall } = this.most;
      const cell = all / Math.max(rows, columns);
      const most = tile.length ? KINDS.Heatmap.most.down : Math.min(down, tall / rows); // on a sheet of maps cells are squares
      return [columns * Math.min(columns > 4 ? across : few, cell), rows * Math.min(most, cell)];
    },
    size(panel) {
      const { top, right, bottom } = this.margin;
      const [width, height] = this.shape(panel);
      return [this.left(panel) + right + width, top + bottom + height];
    },
    // Width and height of a cell, which is a square on a sheet of maps, and the left edge of the first.
    grid(panel) {
      const [width, height] = this.shape(panel);
      const [across, down] = [width / panel.columns.length, height / panel.rows.length].map((side) => Math.min(this.most.any, side));
      const cell = panel.grid_labels.length ? [Math.min(across, down), Math.min(across, down)] : [across, down];
      return [...cell, this.left(panel) + (width - cell[0] * panel.columns.length) / 2];
    },
    // On a sheet of maps, a cell and its row belong to one of the maps.
    cells(panel) {
      const { top } = this.margin;
      const [across, down, left] = this.grid(panel);
      const [rows, columns] = [panel.rows.length, panel.columns.length];
      const tiled = panel.grid_labels.length > 0;
      const side = panel.grid_labels.length || Math.max(rows, columns);
      const maps = Math.ceil(columns / (side + 1)); // in a row of them
      const names = tiled ? [panel.grid_labels, panel.grid_labels] : [panel.rows, panel.columns];
      const find = (index) => {
        const [r, c] = [Math.floor(index / columns), index % columns];
        const [row, column] = tiled ? [r % (side + 1), c % (side + 1)] : [r, c];
        return { row, column, first: index - column, map: Math.floor(r / (side + 1)) * maps + Math.floor(c / (side + 1)) };
      };
      const box = (index, length = 1, height = 1) => [left + across * (index % columns), top + down * Math.floor(index / columns), across * length, down * height];
      const texts = textsOf(panel);
      const axes = (index) => {
        const { row, column, map } = find(index);
        return { [panel.row_label]: row, [panel.column_label]: column, ...(tiled && { [panel.map_label]: map }) };
      };
      const marks = ({ [panel.row_label]: row, [panel.column_label]: column, [panel.map_label]: only }) => {
        const [height, length] = tiled ? [side, side] : [rows, columns];
        const origins = tiled
          ? [...Array(maps * Math.ceil(rows / (side + 1))).keys()].map((map) => [map, (side + 1) * (Math.floor(map / maps) * columns + (map % maps))])
          : [[0, 0]];
        return origins
          .filter(([map]) => only === undefined || !tiled || map === only)
          .flatMap(([, origin]) => [
            ...(row < height ? [box(origin + row * columns, length)] : []),
            ...(column < length ? [box(origin + column, 1, height)] : []),
          ]);
      };
      return {
        count: texts.length,
        box: (index) => box(index),
        axes,
        marks,
        says({ [panel.row_label]: row, [panel.column_label]: column }) {
          if (tiled || !(row < rows)) return "";
          return column < columns ? `${panel.title}: ${texts[row * columns + column]}${panel.unit}` : `${panel.title}: ${rowOf(panel, row)}`;
        },
        tell(index) {
          const { row, column, first, map } = find(index);
          if (!(row in names[0] && column in names[1])) return "";
          const length = names[1].length;
          const whole = length <= 16 ? texts.slice(first, first + length).join("  ") : `${length} values`;
          const at = `${place(panel.row_label, row, names[0][row])}, ${place(panel.column_label, column, names[1][column])}`;
          const name = panel.map_names[map] ? ` (${panel.map_names[map]})` : "";
          return `${tiled ? `${panel.map_label} ${map}${name}, ` : ""}${at}: ${texts[index]}${panel.unit}. Its row: ${whole}.`;
        },
      };
    },
    draw(pen, panel, _, theme) {
      const { top } = this.margin;
      const values = floats(panel.values);
      const [across, down, left] = this.grid(panel);
      const [rows, columns] = [panel.rows.length, panel.columns.length];
      const [x, y] = [(index) => left + across * (index % columns), (index) => top + down * Math.floor(index / columns)];
      const [width, height] = [across * columns, down * rows];
      pen.fillStyle = css(theme.zero);
      pen.fillRect(left, top, width, height);
      values.forEach((value, index) => {
        if (value === 0) return;
        pen.fillStyle = css(shade(value / panel.limit, theme));
        pen.fillRect(x(index), y(index), Math.ceil(across), Math.ceil(down));
      });
      pen.fillStyle = theme.between;
      const side = panel.grid_labels.length || Infinity; // of a map, beside which there may be others
      for (let r = side; r < rows; r += side + 1) pen.fillRect(left, top + down * r, width, down);
      for (let c = side; c < columns; c += side + 1) pen.fillRect(left + across * c, top, across, height);
      const longest = panel.texts.reduce((one, other) => (other.length > one.length ? other : one), "");
      const px = [12, 11].find((px) => widest([longest], px) <= across - 2);
      if (down >= 12 && px) {
        pen.font = theme.font(px);
        panel.texts.forEach((text, index) => {
          pen.fillStyle = inkOn(shade(values[index] / panel.limit, theme));
          label(pen, text, x(index) + across / 2, y(index) + down / 2);
        });
      }
      pen.strokeStyle = theme.faint;
      pen.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
      pen.strokeStyle = theme.text;
      for (const index of panel.crossed_out) {
        const [x0, x1] = [0.22, 0.78].map((share) => x(index) + across * share);
        const [y0, y1] = [0.22, 0.78].map((share) => y(index) + down * share);
        line(pen, x0, y0, x1, y1);
        line(pen, x0, y1, x1, y0);
      }
      pen.strokeStyle = theme.faint;
      if (Math.min(across, down) >= this.gridded) {
        pen.globalAlpha = 0.5;
        for (let r = 1; r < rows; r++) line(pen, left, top + down * r, left + width, top + down * r);
        for (let c = 1; c < columns; c++) line(pen, left + across * c, top, left + across * c, top + height);
        pen.globalAlpha = 1;
      }
      if (panel.framed !== null) {
        pen.strokeStyle = theme.purple;
        pen.lineWidth = 3;
        pen.strokeRect(x(panel.framed) - 0.5, y(panel.framed) - 0.5, across + 1, down + 1);
      }
      pen.fillStyle = theme.text;
      pen.font = theme.font(11);
      const step = (room, cell) => (panel.grid_labels.length ? 1 : Math.ceil(room / cell));
      const [tall, wide] = [step(13, down), step(widest(panel.columns, 11) + 2, across)];
      for (let r = 0; r < rows; r += tall) label(pen, panel.rows[r], left - 6, top + down * (r + 0.5), "right");
      for (let c = 0; c < columns; c += wide) label(pen, panel.columns[c], left + across * (c + 0.5), top + height + 10);
      pen.font = theme.font(12);
      const [down_label, across_label] = [panel.row_label, panel.column_label].map((axis) => (rows * columns > side * side ? `${panel.map_label} and ${axis}` : axis));
      label(pen, across_label, left + width / 2, top + height + 31);
      upright(pen, down_label, left - this.left(panel) + 10, top + height / 2);
    },
  },

  Bars: {
    // Room for any name, and for any value within the limits.
    size({ labels, reserved, limits }) {
      const longest = widest([...labels, ...limits.map((limit) => limit.toFixed(2).replace("-", "−"))], 12);
      return [Math.min(this.widest, Math.max(164, (longest + 4) * reserved + 16)), this.height];
    },
    widest: Infinity,
    height: 175,
    top: 20,
    bottom: ({ limits: [low] }) => (low < 0 ? 56 : 40),
    cells(panel) {
      const [width, height] = this.size(panel);
      const [low, high] = panel.limits;
      const heights = floats(panel.heights);
      const slot = (width - 16) / panel.labels.length;
      const box = (index) => [8 + slot * index, 2, slot, height - 20];
      return {
        count: panel.labels.length,
        box,
        axes: (index) => ({ [panel.label]: index }),
        marks: ({ [panel.label]: index }) => (index < panel.labels.length ? [box(index)] : []),
        says: ({ [panel.label]: index }) => (index < panel.labels.length ? `${panel.title}: ${panel.texts[index]}` : ""),
        tell: (index) => `${panel.title}, “${panel.labels[index]}”: ${panel.texts[index]}.`,
        // The control that a bar drags, if any, its value, and the value at a height of the canvas.
        control: (index) => Number.isFinite(heights[index]) && panel.controls[index],
        value: (index) => heights[index],
        valueAt: (y) => high - ((y - this.top) / (height - this.top - this.bottom(panel))) * (high - low),
      };
    },
    draw(pen, panel, [width, height], theme) {
      const heights = floats(panel.heights);
      const [low, high] = panel.limits;
      const [top, bottom] = [this.top, this.bottom(panel)];
      const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
      const slot = (width - 16) / heights.length;
      const cramped = widest(panel.texts, 11) > slot - 4; // then 0.25 is .25
      pen.strokeStyle = theme.faint;
      pen.strokeRect(8, Math.round(y(0)) + 0.5, width - 16, 0);
      heights.forEach((value, bar) => {
        const shown = Number.isFinite(value) ? Math.max(low, Math.min(high, value)) : 0;
        const x = 8 + slot * (bar + 0.5);
        pen.fillStyle = theme.blue;
        pen.fillRect(x - slot * 0.35, Math.min(y(0), y(shown)), slot * 0.7, Math.abs(y(shown) - y(0)));
        if (value > high) {
          pen.strokeStyle = css(theme.zero);
          pen.lineWidth = 4;
          line(pen, x - slot * 0.4, top + 18, x + slot * 0.4, top + 10); // cut off
        }
        pen.fillStyle = theme.text;
        if (panel.controls.length && Number.isFinite(value)) pen.fillRect(x - slot * 0.35, y(shown) - 2, slot * 0.7, 4); // to drag
        pen.font = theme.font(slot < 28 ? 11 : 12);
        label(pen, cramped ? panel.texts[bar].replace(/^(−?)0\./, "$1.") : panel.texts[bar], x, y(shown) + (shown < 0 ? 10 : -9));
        label(pen, panel.labels[bar], x, height - 26);
      });
      pen.font = theme.font(12);
      label(pen, panel.label, width / 2, height - 9);
    },
  },

  Comparison: {
    plot: [120, 30], // pixels of the longest bar, and of a label's bars with the gap above them
    room: 92, // for a label
    top: 24,
    size({ labels }) {
      return [this.room + this.plot[0] + 42, this.top + this.plot[1] * labels.length + 4];
    },
    cells(panel) {
      const [width] = this.size(panel);
      const series = panel.names.length;
      const box = (index) => [0, this.top + this.plot[1] * index, width, this.plot[1]];
      const tell = (index) =>
        `“${panel.labels[index]}”: ` + panel.names.map((name, at) => `${name} ${panel.texts[series * index + at]}`).join(", ");
      return { count: panel.labels.length, box, tell };
    },
    draw(pen, panel, _, theme) {
      const values = floats(panel.values);
      const [longest, height] = this.plot;
      const series = panel.names.length;
      const thickness = (height - 5) / series;
      pen.font = theme.font(11);
      let along = 4;
      panel.names.forEach((name, index) => {
        pen.fillStyle = theme.curves[index];
        pen.fillRect(along, 5, 10, 10);
        pen.fillStyle = theme.text;
        label(pen, name, along + 14, 11, "left");
        along += 14 + widthOf(name, 11) + 14;
      });
      values.forEach((value, index) => {
        const [row, at] = [Math.floor(index / series), index % series];
        const y = this.top + height * row + 3 + thickness * at;
        const length = longest * Math.min(1, value / panel.limit);
        pen.fillStyle = theme.curves[at];
        pen.fillRect(this.room, y, length, thickness - 1);
        pen.fillStyle = theme.text;
        label(pen, panel.texts[index], this.room + length + 4, y + thickness / 2, "left");
      });
      pen.font = theme.font(12);
      panel.labels.forEach((name, row) => label(pen, name, this.room - 6, this.top + height * (row + 0.5), "right"));
      pen.strokeStyle = theme.faint;
      pen.strokeRect(this.room - 0.5, this.top, 0, height * panel.labels.length);
    },
  },

  Histogram: {
    extent: [300, 190],
    size() {
      return this.extent;
    },
    off: () => 16,
    draw(pen, panel, [width, height], theme) {
      const [density, curve] = [floats(panel.density), floats(panel.curve)];
      const [left, right, top, bottom] = [28, 12, 26, 40];
      const [w, h] = [width - left - right, height - top - bottom];
      const highest = Math.max(...density, ...curve, 1e-12) * 1.05;
      const y = (value) => top + h * (1 - value / highest);
      pen.fillStyle = theme.blue;
      density.forEach((value, bin) => {
        const [from, to] = [left + (w * bin) / density.length, left + (w * (bin + 1)) / density.length];
        pen.fillRect(from, y(value), to - from + 0.5, top + h - y(value));
      });
      pen.font = theme.font(11);
      label(pen, "■ measured", left + 4, 10, "left");
      if (curve.length) {
        pen.strokeStyle = pen.fillStyle = theme.text;
        pen.lineWidth = 2;
        pen.setLineDash([6, 4]);
        pen.beginPath();
        curve.forEach((value, i) => pen.lineTo(left + (w * i) / (curve.length - 1), y(value)));
        pen.stroke();
        pen.setLineDash([]);
        label(pen, "╌ normal", left + 90, 10, "left");
      }
      pen.strokeStyle = theme.faint;
      pen.lineWidth = 1;
      pen.strokeRect(left, top + h + 0.5, w, 0);
      pen.fillStyle = theme.text;
      panel.ticks.forEach((tick, i) => label(pen, tick, left + (w * i) / 2, top + h + 11));
      pen.font = theme.font(12);
      label(pen, panel.x_label, left + w / 2, height - 9);
      upright(pen, "density", 12, top + h / 2);
    },
  },

  Scatter: {
    size: () => [328, 320], // as wide as a phone shows
    off: () => 34,
    draw(pen, panel, [width, height], theme) {
      const [left, right, top, bottom] = [44, 10, 8, 40];
      const [low, high] = panel.limits;
      const scale = Math.min(width - left - right, height - top - bottom) / (high - low);
      const middle = [(left + width - right) / 2, (top + height - bottom) / 2];
      const centre = (low + high) / 2;
      const at = ([x, y]) => [middle[0] + scale * (x - centre), middle[1] - scale * (y - centre)];
      const [edge, corner] = [at([low, high]), at([high, low])];
      pen.strokeStyle = theme.faint;
      pen.strokeRect(...edge, scale * (high - low), scale * (high - low));
      pen.fillStyle = theme.text;
      pen.font = theme.font(11);
      const wide = high - low > 20;
      const step = wide ? 10 ** Math.ceil(Math.log10((high - low) / 4)) : 2;
      for (let tick = wide ? Math.ceil(low / step) * step : Math.ceil(low) + 1; tick < high; tick += step) {
        label(pen, String(tick).replace("-", "−"), at([tick, 0])[0], corner[1] + 11);
        label(pen, String(tick).replace("-", "−"), edge[0] - 6, at([0, tick])[1], "right");
      }
      pen.font = theme.font(12);
      label(pen, panel.x_label, middle[0], height - 9);
      upright(pen, panel.y_label, edge[0] - 32, middle[1]);
      const dot = (point, radius, colour) => {
        pen.beginPath();
        pen.arc(...at(point), radius, 0, 2 * Math.PI);
        pen.fillStyle = colour;
        pen.fill();
      };
      panel.points.forEach((point, index) => dot(point, 6, panel.lit[index] ? theme.blue : theme.pale));
      if (panel.path.length) {
        pen.strokeStyle = theme.green;
        pen.lineWidth = 2;
        pen.beginPath();
        panel.path.forEach((point) => pen.lineTo(...at(point)));
        pen.stroke();
        panel.path.forEach((point) => dot(point, 3, theme.green));
        pen.beginPath();
        pen.arc(...at(panel.path[panel.path.length - 1]), 10, 0, 2 * Math.PI);
        pen.stroke();
      }
      pen.fillStyle = theme.text;
      panel.points.forEach((point, index) => {
        const [x, y] = at(point);
        const fits = x + 9 + widthOf(panel.labels[index], 12) < corner[0];
        label(pen, panel.labels[index], fits ? x + 9 : x - 9, y - 9, fits ? "left" : "right");
      });
    },
  },

  Arrows: {
    circle: [136, 128], // width and height of the room of one, its label included
    radius: 50,
    top: 22,
    box(panel, index) {
      const [width, height] = this.circle;
      return [width * (index % panel.columns), this.top + height * Math.floor(index / panel.columns), width, height];
    },
    size(panel) {
      const [width, height] = this.circle;
      return [width * panel.columns, this.top + height * Math.ceil(panel.reserved / panel.columns) + 2];
    },
    cells(panel) {
      const arrows = [...floats(panel.arrows)];
      const arrow = (index, at) => `${panel.names[at]} (${numbers(arrows.slice(4 * index + 2 * at, 4 * index + 2 * at + 2)).join(", ")})`;
      const box = (index) => this.box(panel, index);
      const tell = (index) => `${panel.labels[index]}: ${arrow(index, 0)}, ${arrow(index, 1)}`;
      return { count: panel.labels.length, box, tell };
    },
    draw(pen, panel, [width], theme) {
      const arrows = floats(panel.arrows).map((value) => (this.radius * value) / panel.limit);
      pen.font = theme.font(11);
      const inks = [theme.purple, theme.amber];
      panel.names.forEach((name, index) => {
        const x = width * (0.25 + 0.5 * index);
        pen.strokeStyle = pen.fillStyle = inks[index];
        this.arrow(pen, x - 34, 10, 28, 0);
        pen.fillStyle = theme.text;
        label(pen, name, x, 10, "left");
      });
      panel.labels.forEach((name, index) => {
        const [left, top, room] = this.box(panel, index);
        const [x, y] = [left + room / 2, top + this.radius + 4];
        const pairs = [0, 2].map((at) => [arrows[4 * index + at], -arrows[4 * index + at + 1]]);
        pen.lineWidth = 1;
        pen.strokeStyle = theme.faint;
        pen.beginPath();
        pen.arc(x, y, this.radius, 0, 2 * Math.PI);
        pen.stroke();
        const [first, second] = pairs.map(([dx, dy]) => Math.atan2(dy, dx));
        pen.fillStyle = theme.faint;
        pen.beginPath();
        pen.moveTo(x, y);
        pen.arc(x, y, 0.35 * this.radius, first, second, Math.sin(second - first) < 0);
        pen.fill();
        pairs.forEach(([dx, dy], at) => {
          pen.strokeStyle = pen.fillStyle = inks[at];
          this.arrow(pen, x, y, dx, dy);
        });
        pen.fillStyle = theme.text;
        label(pen, name, x, y + this.radius + 12);
      });
    },
    arrow(pen, x, y, dx, dy) {
      const length = Math.hypot(dx, dy);
      if (length === 0) return;
      const head = Math.min(9, length);
      const [ux, uy] = [dx / length, dy / length];
      pen.lineWidth = 2.5;
      line(pen, x, y, x + dx - 0.7 * head * ux, y + dy - 0.7 * head * uy);
      pen.beginPath();
      pen.moveTo(x + dx, y + dy);
      for (const side of [-0.4, 0.4]) pen.lineTo(x + dx - head * (ux - side * uy), y + dy - head * (uy + side * ux));
      pen.fill();
    },
  },

  Lines: {
    margin: { left: 60, bottom: 40 },
    plot: () => [336, 200],
    off(panel) {
      return this.margin.left - this.right(panel);
    },
    row: 17, // of the legend, above the plot
    apart: 20, // markers along a curve, at least
    right: (panel) => 12 + widest(panel.levels.map((level) => level.label), 11),
    // Where each entry of the legend stands: next to the one before, or in a new row if there is no room.
    legend(panel) {
      let [x, row] = [0, 0];
      const places = panel.curves.map(({ name }) => {
        const width = 36 + widest([name], 11) + 14;
        if (x > 0 && x + width > this.plot(panel)[0]) [x, row] = [0, row + 1];
        x += width;
        return [x - width, row];
      });
      return { places, height: places.length ? this.row * (row + 1) + 6 : 8 };
    },
    size(panel) {
      const [w, h] = this.plot(panel);
      const { left, bottom } = this.margin;
      return [left + w + this.right(panel), this.legend(panel).height + h + bottom];
    },
    draw(pen, panel, [, height], theme) {
      const { left } = this.margin;
      const [w, h] = this.plot(panel);
      const { places, height: top } = this.legend(panel);
      const scale = panel.log ? Math.log : (value) => value;
      const share = (value, [low, high]) => (scale(value) - scale(low)) / (scale(high) - scale(low));
      const x = (value) => left + w * share(value, panel.x_limits);
      const y = (value) => top + h * (1 - share(value, panel.y_limits));
      const crisp = (place) => Math.round(place) + 0.5;
      pen.font = theme.font(11);
      pen.strokeStyle = theme.faint;
      pen.fillStyle = theme.text;
      pen.globalAlpha = 0.5;
      for (const [value] of panel.x_ticks) line(pen, crisp(x(value)), top, crisp(x(value)), top + h);
      for (const [value] of panel.y_ticks) line(pen, left, crisp(y(value)), left + w, crisp(y(value)));
      pen.globalAlpha = 1;
      for (const [value, text] of panel.x_ticks) label(pen, text, x(value), top + h + 12);
      for (const [value, text] of panel.y_ticks) label(pen, text, left - 6, y(value), "right");
      pen.strokeStyle = theme.text;
      pen.setLineDash([6, 4]);
      for (const level of panel.levels) {
        line(pen, left, crisp(y(level.y)), left + w, crisp(y(level.y)));
        label(pen, level.label, left + w + 6, top + h * (1 - level.at), "left");
      }
      pen.font = theme.font(12);
      label(pen, panel.x_label, left + w / 2, height - 9);
      upright(pen, panel.y_label, 8, top + h / 2);
      pen.font = theme.font(11);
      pen.lineWidth = 2;
      pen.lineJoin = "round";
      panel.curves.forEach((curve, index) => {
        const [xs, ys] = [[...floats(curve.x)].map(x), [...floats(curve.y)].map(y)];
        const [from, row] = [left + places[index][0], 8 + this.row * places[index][1]];
        pen.setLineDash(index < MARKERS.length ? [] : [6, 4]);
        pen.strokeStyle = pen.fillStyle = theme.curves[index % theme.curves.length];
        line(pen, from, row, from + 28, row);
        marker(pen, index, from + 14, row);
        pen.beginPath();
        xs.forEach((along, i) => pen.lineTo(along, ys[i]));
        pen.stroke();
        let last = -Infinity;
        xs.forEach((along, i) => {
          if (along - last < this.apart) return;
          marker(pen, index, along, ys[i]);
          last = along;
        });
        pen.fillStyle = theme.text;
        label(pen, curve.name, from + 34, row, "left");
      });
    },
  },

  Text: {
    cell: () => [9, 20],
    size(panel) {
      const [width, height] = this.cell(panel);
      return [width * panel.columns + 4, height * panel.rows.length + 4];
    },
    // The characters and the box of each token, which stands in one row.
    tokens(panel) {
      const [width, height] = this.cell(panel);
      const tokens = [];
      panel.rows.forEach((line, row) => {
        const characters = [...line];
        for (let column = 0; column < characters.length; ) {
          const length = panel.lengths[tokens.length] ?? 1;
          const box = [2 + width * column, 3 + height * row, width * length, height - 2];
          tokens.push({ characters: characters.slice(column, column + length), box });
          column += length;
        }
      });
      return tokens;
    },
    cells(panel) {
      if (!panel.label) return undefined;
      const tokens = this.tokens(panel);
      const values = floats(panel.values);
      const texts = numbers([...values]);
      const unit = panel.lengths.length ? "token" : "character";
      const box = (index) => tokens[index].box;
      const tell = (index) => `${place(unit, index, tokens[index].characters.join(""))}: ${panel.label} ${texts[index]}`;
      return { count: tokens.length, box, tell };
    },
    draw(pen, panel, _, theme) {
      const values = floats(panel.values);
      const [letter] = this.cell(panel);
      pen.font = theme.code((14 * letter) / 9);
      this.tokens(panel).forEach(({ characters, box: [x, y, width, height] }, index) => {
        pen.fillStyle = theme.text;
        if (values[index] > 0) {
          const share = Math.min(1, values[index] / panel.limit);
          pen.fillStyle = theme.blue;
          pen.globalAlpha = share;
          pen.fillRect(x, y, width, height);
          pen.globalAlpha = 1;
          pen.fillStyle = inkOn(shade(share, theme));
        }
        characters.forEach((character, at) => label(pen, character, x + letter * (at + 0.5), y + height / 2 + 1));
        if (index !== panel.framed) return;
        pen.strokeStyle = theme.purple;
        pen.lineWidth = 2;
        pen.strokeRect(x, y, width, height);
      });
    },
  },
};

// The same on a phone, where panels stand below one another: no wider than the smallest phone shows, and flat, so that
// they are seen together with their controls.
const PHONE = 328; // CSS pixels
const changes = {
  Heatmap: { most: { ...KINDS.Heatmap.most, down: 16, tall: 176 } },
  Bars: { widest: PHONE, height: 132 },
  Histogram: { extent: [300, 136] },
  Arrows: { circle: [136, 96], radius: 34 },
  Lines: {
    plot(panel) {
      return [PHONE - this.margin.left - this.right(panel), 130];
    },
  },
  Text: { cell: ({ columns }) => [Math.min(9, (PHONE - 4) / columns), 20] },
};
const FLAT = Object.fromEntries(Object.entries(KINDS).map(([kind, drawing]) => [kind, { ...drawing, ...changes[kind] }]));

const AS_WIDE = 15; // pixels of letters that are as wide as the bold ones of a title, which have 13

// The width of a panel with its title, and the padding that moves the title from the middle of the canvas to that of
// the plot, as far as there is room.
function around(panel, kinds = KINDS) {
  const kind = kinds[panel.kind];
  const [[width], title] = [kind.size(panel), widest([panel.title], AS_WIDE)];
  const [spare, off] = [Math.max(0, width - title), kind.off?.(panel) ?? 0];
  const [left, right] = [off, -off].map((side) => Math.min(spare, Math.max(0, side)));
  return [`${Math.max(width, title)}px`, `0 ${right}px 0 ${left}px`];
}

const INVITATION = "Point at a cell or a bar, tap it, or go there with Tab and the arrow keys, to read it here. A click or Enter pins it.";
const DRAGGING = " Drag a bar, or choose one with ← and → and move it with ↑ and ↓.";

// What a reader can do with the panels, in words.
function invitation(panels) {
  if (!panels.some((panel) => KINDS[panel.kind].cells?.(panel))) return "";
  return INVITATION + (panels.some((panel) => panel.controls?.length) ? DRAGGING : "");
}
