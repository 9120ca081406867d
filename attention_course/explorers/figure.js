// Draws the panels of attention_course.plots. Each panel is one canvas, painted anew on every change: a 64 x 64
// heatmap takes about a millisecond, and a canvas painted at the screen's own resolution is sharp everywhere.

const BLUE = [0, 114, 178];
const ORANGE = [213, 94, 0];
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
    font: (px, weight = "") => `${weight} ${px}px ${value("--jp-ui-font-family", "sans-serif")}`,
  };
}

// The text colour that stands out from a cell: relative luminance as WCAG 2 defines it, split where black and white tie.
function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111" : "white";
}

const floats = (view) => new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));

function label(pen, text, x, y, { align = "center", baseline = "middle", turn = 0 } = {}) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(turn);
  pen.textAlign = align;
  pen.textBaseline = baseline;
  pen.fillText(text, 0, 0);
  pen.restore();
}

// Every kind of panel: size(panel) in CSS pixels, draw(pen, panel, size, theme).
const KINDS = {
  Heatmap: {
    margin: { left: 46, top: 4, right: 6, bottom: 40 },
    cell: (panel) => Math.min(44, 280 / Math.max(panel.rows.length, panel.columns.length)),
    size(panel) {
      const { left, top, right, bottom } = this.margin;
      const cell = this.cell(panel);
      return [left + right + cell * panel.columns.length, top + bottom + cell * panel.rows.length];
    },
    draw(pen, panel, [width, height], theme) {
      const { left, top } = this.margin;
      const values = floats(panel.values);
      const cell = this.cell(panel);
      const [rows, columns] = [panel.rows.length, panel.columns.length];
      for (let index = 0; index < values.length; index++) {
        const share = Math.max(-1, Math.min(1, values[index] / panel.limit));
        const strength = Number.isFinite(values[index]) ? Math.abs(share) : 0;
        const ink = share < 0 ? theme.orange : theme.blue;
        const [x, y] = [left + cell * (index % columns), top + cell * Math.floor(index / columns)];
        const colour = theme.zero.map((zero, c) => zero + (ink[c] - zero) * strength);
        pen.fillStyle = css(colour);
        pen.fillRect(x, y, Math.ceil(cell), Math.ceil(cell));
        if (panel.texts.length) {
          pen.fillStyle = inkOn(colour);
          pen.font = theme.font(cell < 34 ? 11 : 12);
          label(pen, panel.texts[index], x + cell / 2, y + cell / 2);
        }
      }
      pen.strokeStyle = theme.faint;
      pen.strokeRect(left - 0.5, top - 0.5, cell * columns + 1, cell * rows + 1);
      pen.fillStyle = theme.text;
      pen.font = theme.font(11);
      const step = Math.max(1, Math.ceil(18 / cell));
      for (let r = 0; r < rows; r += step) label(pen, panel.rows[r], left - 6, top + cell * (r + 0.5), { align: "right" });
      for (let c = 0; c < columns; c += step) label(pen, panel.columns[c], left + cell * (c + 0.5), top + cell * rows + 10);
      pen.font = theme.font(12);
      label(pen, panel.column_label, left + (cell * columns) / 2, height - 9);
      label(pen, panel.row_label, 10, top + (cell * rows) / 2, { turn: -Math.PI / 2 });
    },
  },

  Bars: {
    size: (panel) => [Math.max(164, 40 * panel.labels.length + 30), 230],
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
      label(pen, "■ measured", left + 4, 10, { align: "left" });
      if (curve.length) {
        pen.strokeStyle = pen.fillStyle = css(theme.orange);
        pen.lineWidth = 2.5;
        pen.beginPath();
        curve.forEach((value, i) => pen.lineTo(left + (w * i) / (curve.length - 1), y(value)));
        pen.stroke();
        label(pen, "— predicted", left + 90, 10, { align: "left" });
      }
      pen.strokeStyle = theme.faint;
      pen.lineWidth = 1;
      pen.strokeRect(left, top + h + 0.5, w, 0);
      pen.fillStyle = theme.text;
      panel.ticks.forEach((tick, i) => label(pen, tick, left + (w * i) / 2, top + h + 11));
      pen.font = theme.font(12);
      label(pen, panel.x_label, left + w / 2, height - 9);
      label(pen, "density", 12, top + h / 2, { turn: -Math.PI / 2 });
    },
  },

  Plane: {
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
        label(pen, String(tick).replace("-", "−"), edge[0] - 6, at([0, tick])[1], { align: "right" });
      }
      pen.font = theme.font(12);
      label(pen, panel.x_label, middle[0], height - 9);
      label(pen, panel.y_label, edge[0] - 32, middle[1], { turn: -Math.PI / 2 });
      const dot = (point, radius, colour) => {
        pen.beginPath();
        pen.arc(...at(point), radius, 0, 2 * Math.PI);
        pen.fillStyle = colour;
        pen.fill();
      };
      panel.points.forEach((point, index) => {
        dot(point, 6, panel.lit[index] ? css(theme.blue) : theme.pale);
        pen.fillStyle = theme.text;
        const [x, y] = at(point);
        label(pen, panel.labels[index], x + 9, y - 9, { align: "left" });
      });
      if (!panel.path.length) return;
      pen.strokeStyle = css(theme.orange);
      pen.lineWidth = 2;
      pen.beginPath();
      panel.path.forEach((point) => pen.lineTo(...at(point)));
      pen.stroke();
      panel.path.forEach((point) => dot(point, 3, css(theme.orange)));
      pen.beginPath();
      pen.arc(...at(panel.path[panel.path.length - 1]), 10, 0, 2 * Math.PI);
      pen.stroke();
    },
  },
};

function element(parent, tag, attributes = {}) {
  return Object.assign(parent.appendChild(document.createElement(tag)), attributes);
}

function render({ model, el }) {
  const root = element(el, "div", { className: "attention-figure" });
  const row = element(root, "div", { className: "attention-panels", role: "img" });
  const caption = element(root, "p");
  caption.setAttribute("aria-live", "polite");
  const error = element(root, "p", { role: "alert" });

  const paint = () => {
    const panels = model.get("panels");
    while (row.children.length > panels.length) row.lastChild.remove();
    while (row.children.length < panels.length) {
      const box = element(row, "div");
      element(box, "h4");
      element(box, "canvas");
    }
    const theme = themeOf(document.body);
    const density = window.devicePixelRatio;
    panels.forEach((panel, index) => {
      const [title, canvas] = row.children[index].children;
      title.textContent = panel.title;
      const [width, height] = KINDS[panel.kind].size(panel);
      canvas.width = width * density;
      canvas.height = height * density;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d");
      pen.scale(density, density);
      KINDS[panel.kind].draw(pen, panel, [width, height], theme);
    });
    const failed = model.get("error");
    error.textContent = failed && `This could not be drawn. ${failed}. Move a control to go on.`;
    row.style.opacity = failed ? 0.35 : 1;
    caption.textContent = model.get("caption");
    row.setAttribute("aria-label", `${panels.map((panel) => panel.title).join("; ")}. ${model.get("caption")}`);
    root.dataset.painted = Number(root.dataset.painted || 0) + 1;
  };

  paint();
  model.on("change", paint);
  const theme = new MutationObserver(paint);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name"] });
  window.addEventListener("resize", paint); // zooming changes the pixel density
  return () => {
    model.off("change", paint);
    theme.disconnect();
    window.removeEventListener("resize", paint);
  };
}

export default { render };
