// The panels of attention_course.plots, each painted on a canvas of its own: a 64 x 64 heatmap takes about a
// millisecond, and a canvas painted at the screen's own resolution is sharp everywhere.

const BLUE = [0, 114, 178];
const ORANGE = [213, 94, 0];
// Okabe & Ito's colours, in the order of plots.Lines, and lighter ones for the dark theme.
const CURVES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#222222"],
  dark: ["#3ca0e1", "#f08232", "#2fc49a", "#e39cc4", "#a5d8f5", "#f5c04a", "#e0e0e0"],
};
// The markers of matplotlib's "os^DvPX" as corners; a circle has none.
const PLUS = [[-1.3, -0.45], [-0.45, -0.45], [-0.45, -1.3], [0.45, -1.3], [0.45, -0.45], [1.3, -0.45]];
PLUS.push(...PLUS.map(([x, y]) => [-x, -y]));
const MARKERS = [
  [],
  [[-1, -1], [1, -1], [1, 1], [-1, 1]],
  [[0, -1.2], [1.2, 1], [-1.2, 1]],
  [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
  [[0, 1.2], [1.2, -1], [-1.2, -1]],
  PLUS,
  PLUS.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2]),
];
const css = (rgb) => `rgb(${rgb.map(Math.round).join(",")})`;

function themeOf(element) {
  const style = getComputedStyle(element);
  const value = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  const dark = document.body.dataset.jpThemeLight === "false";
  return {
    text: value("--jp-ui-font-color1", "#222"),
    faint: value("--jp-border-color1", "#bbb"),
    zero: dark ? [40, 40, 40] : [255, 255, 255],
    blue: dark ? [60, 160, 225] : BLUE,
    orange: dark ? [240, 130, 50] : ORANGE,
    pale: dark ? "#4a5a66" : "#bfd4e0",
    curves: dark ? CURVES.dark : CURVES.light,
    font: (px) => `${px}px ${value("--jp-ui-font-family", "sans-serif")}`,
    code: (px) => `${px}px ${value("--jp-code-font-family", "monospace")}`,
  };
}

// The colour of a value, given as a share of the one that has the full colour; NaN and infinities have none.
function shade(share, theme) {
  const ink = share < 0 ? theme.orange : theme.blue;
  const strength = Number.isFinite(share) ? Math.min(1, Math.abs(share)) : 0;
  return theme.zero.map((zero, channel) => zero + (ink[channel] - zero) * strength);
}

// The text colour that stands out from a cell: relative luminance as WCAG 2 defines it, split where black and white tie.
function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111" : "white";
}

const floats = (view) => new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));

function label(pen, text, x, y, align = "center") {
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(text, x, y);
}

// A label that is read from bottom to top, inside the canvas even where what it names is short.
function upright(pen, text, x, y) {
  pen.save();
  pen.translate(x, Math.max(y, pen.measureText(text).width / 2 + 2));
  pen.rotate(-Math.PI / 2);
  label(pen, text, 0, 0);
  pen.restore();
}

const ruler = document.createElement("canvas").getContext("2d");

// How wide the widest of some texts is; Lines.size is asked before there is a canvas to draw on.
function widest(texts, font) {
  ruler.font = font;
  return Math.ceil(Math.max(0, ...texts.map((text) => ruler.measureText(text).width)));
}

// A value in words, as plots.format_number writes it: a tie, which only odd eighths are, goes to the even digit.
function number(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "∞" : "−∞";
  const settled = Math.abs(8 * value) % 2 === 1 ? Math.round(50 * value) / 50 : value;
  return (Number.isInteger(value) ? String(value) : settled.toFixed(2)).replace("-", "−");
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

// Every kind of panel: size(panel, theme) in CSS pixels, draw(pen, panel, size, theme). One whose cells can be read
// also has cells(panel): how many there are, the box of each, the box of its row, and what it says in words.
const KINDS = {
  Heatmap: {
    margin: { left: 46, top: 4, right: 6, bottom: 40 },
    gridded: 14, // pixels of a cell from which lines stand between two
    // The largest cell, and width and height of the room that is kept for any shape, so that nothing moves.
    room({ room: [rows, columns] }) {
      const cell = Math.min(44, 280 / Math.max(rows, columns));
      return [cell, cell * columns, cell * rows];
    },
    cell(panel) {
      const [cell, width, height] = this.room(panel);
      return Math.min(cell, width / panel.columns.length, height / panel.rows.length);
    },
    size(panel) {
      const { left, top, right, bottom } = this.margin;
      const [, width, height] = this.room(panel);
      return [left + right + width, top + bottom + height];
    },
    // On a sheet of maps, a cell and its row belong to one of the maps.
    cells(panel) {
      const { left, top } = this.margin;
      const values = floats(panel.values);
      const [cell, columns] = [this.cell(panel), panel.columns.length];
      const side = panel.tile.length + 1;
      const find = (index) => {
        const [r, c] = [Math.floor(index / columns), index % columns];
        if (side === 1) return { r, c, first: r * columns, length: columns, names: [panel.rows[r], panel.columns[c]], map: "" };
        const [row, column] = [r % side, c % side];
        const map = Math.floor(r / side) * Math.ceil(columns / side) + Math.floor(c / side);
        const names = [panel.tile[row], panel.tile[column]];
        return { r: row, c: column, first: index - column, length: side - 1, names, map: `${panel.tile_label} ${map}, ` };
      };
      const box = (index, length = 1) => [left + cell * (index % columns), top + cell * Math.floor(index / columns), cell * length, cell];
      return {
        count: values.length,
        box: (index) => box(index),
        row: (index) => box(find(index).first, find(index).length),
        tell(index) {
          const { r, c, first, length, names, map } = find(index);
          if (names.includes(undefined)) return "";
          const row = values.slice(first, first + length);
          const whole =
            length <= 16
              ? [...row].map(number).join("  ")
              : `${length} values from ${number(Math.min(...row))} to ${number(Math.max(...row))}`;
          const at = `${map}${place(panel.row_label, r, names[0])}, ${place(panel.column_label, c, names[1])}`;
          return `${at}: ${number(values[index])}. Its row: ${whole}`;
        },
      };
    },
    draw(pen, panel, _, theme) {
      const { left, top } = this.margin;
      const values = floats(panel.values);
      const cell = this.cell(panel);
      const [rows, columns] = [panel.rows.length, panel.columns.length];
      const [x, y] = [(index) => left + cell * (index % columns), (index) => top + cell * Math.floor(index / columns)];
      pen.fillStyle = css(theme.zero);
      pen.fillRect(left, top, cell * columns, cell * rows);
      values.forEach((value, index) => {
        if (value === 0) return;
        pen.fillStyle = css(shade(value / panel.limit, theme));
        pen.fillRect(x(index), y(index), Math.ceil(cell), Math.ceil(cell));
      });
      const font = theme.font(cell < 34 ? 11 : 12);
      const longest = panel.texts.reduce((one, other) => (other.length > one.length ? other : one), "");
      if (widest([longest], font) <= cell - 2) {
        pen.font = font;
        panel.texts.forEach((text, index) => {
          pen.fillStyle = inkOn(shade(values[index] / panel.limit, theme));
          label(pen, text, x(index) + cell / 2, y(index) + cell / 2);
        });
      }
      pen.strokeStyle = theme.faint;
      pen.strokeRect(left - 0.5, top - 0.5, cell * columns + 1, cell * rows + 1);
      pen.strokeStyle = theme.text;
      for (const index of panel.crossed) {
        const [from, to] = [cell * 0.22, cell * 0.78];
        line(pen, x(index) + from, y(index) + from, x(index) + to, y(index) + to);
        line(pen, x(index) + from, y(index) + to, x(index) + to, y(index) + from);
      }
      pen.strokeStyle = theme.faint;
      if (cell >= this.gridded) {
        pen.globalAlpha = 0.5;
        for (let r = 1; r < rows; r++) line(pen, left, top + cell * r, left + cell * columns, top + cell * r);
        for (let c = 1; c < columns; c++) line(pen, left + cell * c, top, left + cell * c, top + cell * rows);
        pen.globalAlpha = 1;
      }
      if (panel.framed !== null) {
        pen.strokeStyle = css(theme.orange);
        pen.lineWidth = 2.5;
        pen.strokeRect(x(panel.framed) - 0.5, y(panel.framed) - 0.5, cell + 1, cell + 1);
      }
      pen.fillStyle = theme.text;
      pen.font = theme.font(11);
      const step = Math.max(1, Math.ceil(18 / cell));
      for (let r = 0; r < rows; r += step) label(pen, panel.rows[r], left - 6, top + cell * (r + 0.5), "right");
      for (let c = 0; c < columns; c += step) label(pen, panel.columns[c], left + cell * (c + 0.5), top + cell * rows + 10);
      pen.font = theme.font(12);
      label(pen, panel.column_label, left + (cell * columns) / 2, top + cell * rows + 31);
      upright(pen, panel.row_label, 10, top + (cell * rows) / 2);
    },
  },

  Bars: {
    size({ labels }, theme) {
      const { length } = labels;
      const named = (widest(labels, theme.font(12)) + 6) * length + 16;
      return [Math.max(named, length > 8 ? 33 * length + 16 : Math.max(164, 40 * length + 30)), 230];
    },
    cells(panel, theme) {
      const [width, height] = this.size(panel, theme);
      const slot = (width - 16) / panel.labels.length;
      const box = (index) => [8 + slot * index, 2, slot, height - 20];
      const tell = (index) => `${panel.title}, “${panel.labels[index]}”: ${panel.texts[index]}`;
      return { count: panel.labels.length, box, row: box, tell };
    },
    draw(pen, panel, [width, height], theme) {
      const heights = floats(panel.heights);
      const [low, high] = panel.limits;
      const [top, bottom] = [20, low < 0 ? 56 : 40];
      const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
      const slot = (width - 16) / heights.length;
      pen.strokeStyle = theme.faint;
      pen.strokeRect(8, Math.round(y(0)) + 0.5, width - 16, 0);
      heights.forEach((value, bar) => {
        const shown = Number.isFinite(value) ? Math.max(low, Math.min(high, value)) : 0;
        const x = 8 + slot * (bar + 0.5);
        pen.fillStyle = css(theme.blue);
        pen.fillRect(x - slot * 0.35, Math.min(y(0), y(shown)), slot * 0.7, Math.abs(y(shown) - y(0)));
        pen.fillStyle = theme.text;
        pen.font = theme.font(12);
        label(pen, panel.texts[bar], x, y(shown) + (shown < 0 ? 10 : -9));
        label(pen, panel.labels[bar], x, height - 26);
      });
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
      return { count: panel.labels.length, box, row: box, tell };
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
        along += 14 + pen.measureText(name).width + 14;
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
    size: () => [330, 260],
    draw(pen, panel, [width, height], theme) {
      const [density, curve] = [floats(panel.density), floats(panel.curve)];
      const [left, right, top, bottom] = [28, 12, 26, 40];
      const [w, h] = [width - left - right, height - top - bottom];
      const highest = Math.max(...density, ...curve, 1e-12) * 1.05;
      const y = (value) => top + h * (1 - value / highest);
      pen.fillStyle = css(theme.blue);
      density.forEach((value, bin) => {
        const [from, to] = [left + (w * bin) / density.length, left + (w * (bin + 1)) / density.length];
        pen.fillRect(from, y(value), to - from + 0.5, top + h - y(value));
      });
      pen.font = theme.font(11);
      label(pen, "■ measured", left + 4, 10, "left");
      if (curve.length) {
        pen.strokeStyle = pen.fillStyle = css(theme.orange);
        pen.lineWidth = 2.5;
        pen.beginPath();
        curve.forEach((value, i) => pen.lineTo(left + (w * i) / (curve.length - 1), y(value)));
        pen.stroke();
        label(pen, "— predicted", left + 90, 10, "left");
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
    size: () => [420, 340],
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
      for (let tick = Math.ceil(low) + 1; tick < high; tick += 2) {
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
      panel.points.forEach((point, index) => dot(point, 6, panel.lit[index] ? css(theme.blue) : theme.pale));
      if (panel.path.length) {
        pen.strokeStyle = css(theme.orange);
        pen.lineWidth = 2;
        pen.beginPath();
        panel.path.forEach((point) => pen.lineTo(...at(point)));
        pen.stroke();
        panel.path.forEach((point) => dot(point, 3, css(theme.orange)));
        pen.beginPath();
        pen.arc(...at(panel.path[panel.path.length - 1]), 10, 0, 2 * Math.PI);
        pen.stroke();
      }
      pen.fillStyle = theme.text;
      panel.points.forEach((point, index) => {
        const [x, y] = at(point);
        const fits = x + 9 + pen.measureText(panel.labels[index]).width < corner[0];
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
      return [width * panel.columns, this.top + height * Math.ceil(panel.room / panel.columns) + 2];
    },
    cells(panel) {
      const arrows = floats(panel.arrows);
      const arrow = (index, at) => `${panel.names[at]} (${[0, 1].map((axis) => number(arrows[4 * index + 2 * at + axis])).join(", ")})`;
      const box = (index) => this.box(panel, index);
      const tell = (index) => `${panel.labels[index]}: ${arrow(index, 0)}, ${arrow(index, 1)}`;
      return { count: panel.labels.length, box, row: box, tell };
    },
    draw(pen, panel, [width], theme) {
      const arrows = floats(panel.arrows).map((value) => (this.radius * value) / panel.limit);
      pen.font = theme.font(11);
      panel.names.forEach((name, index) => {
        const x = width * (0.25 + 0.5 * index);
        pen.strokeStyle = pen.fillStyle = theme.curves[index];
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
          pen.strokeStyle = pen.fillStyle = theme.curves[at];
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
    margin: { left: 56, bottom: 40 },
    plot: [400, 210],
    row: 17, // of the legend, above the plot
    apart: 20, // markers along a curve, at least
    right: (panel, theme) => 12 + widest(panel.levels.map((level) => level.label), theme.font(11)),
    // Where each entry of the legend stands: next to the one before, or in a new row if there is no room.
    legend(panel, theme) {
      let [x, row] = [0, 0];
      const places = panel.curves.map(({ name }) => {
        const width = 36 + widest([name], theme.font(11)) + 14;
        if (x > 0 && x + width > this.plot[0]) [x, row] = [0, row + 1];
        x += width;
        return [x - width, row];
      });
      return { places, height: places.length ? this.row * (row + 1) + 6 : 8 };
    },
    size(panel, theme) {
      const [w, h] = this.plot;
      const { left, bottom } = this.margin;
      return [left + w + this.right(panel, theme), this.legend(panel, theme).height + h + bottom];
    },
    draw(pen, panel, [, height], theme) {
      const { left } = this.margin;
      const [w, h] = this.plot;
      const { places, height: top } = this.legend(panel, theme);
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
      upright(pen, panel.y_label, 12, top + h / 2);
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
    cell: [9, 20],
    size(panel) {
      return [this.cell[0] * panel.columns + 4, this.cell[1] * panel.rows.length + 4];
    },
    // The characters and the box of each token, which stands in one row.
    tokens(panel) {
      const [width, height] = this.cell;
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
      const unit = panel.lengths.length ? "token" : "character";
      const box = (index) => tokens[index].box;
      const tell = (index) => `${place(unit, index, tokens[index].characters.join(""))}: ${panel.label} ${number(values[index])}`;
      return { count: tokens.length, box, row: box, tell };
    },
    draw(pen, panel, _, theme) {
      const values = floats(panel.values);
      pen.font = theme.code(14);
      this.tokens(panel).forEach(({ characters, box: [x, y, width, height] }, index) => {
        pen.fillStyle = theme.text;
        if (values[index] > 0) {
          const share = Math.min(1, values[index] / panel.limit);
          pen.fillStyle = css(theme.blue);
          pen.globalAlpha = share;
          pen.fillRect(x, y, width, height);
          pen.globalAlpha = 1;
          pen.fillStyle = inkOn(shade(share, theme));
        }
        characters.forEach((character, at) => label(pen, character, x + this.cell[0] * (at + 0.5), y + height / 2 + 1));
        if (index !== panel.framed) return;
        pen.strokeStyle = css(theme.orange);
        pen.lineWidth = 2;
        pen.strokeRect(x, y, width, height);
      });
    },
  },
};
