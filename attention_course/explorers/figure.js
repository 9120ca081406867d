// An explorer's figure: a row of panels (panels.js stands above this file), painted anew on every change.
// A panel of cells says in words what stands in the cell under the pointer, or where the arrow keys have led, and what
// belongs to it in the other panels, which is framed there. A click pins this, or Enter, until the next one, or Escape.
// The way to the kernel and back takes longer than all the drawing: a picture that was there before is drawn at once,
// and the kernel's answer takes its place.

function element(parent, tag, attributes = {}) {
  return Object.assign(parent.appendChild(document.createElement(tag)), attributes);
}

// A pen for an empty canvas of this size in CSS pixels. A new size makes the browser lay the page out again,
// which takes longer than the drawing: a canvas that has it already is wiped.
function penOf(canvas, width, height) {
  const density = window.devicePixelRatio;
  const pixels = [width, height].map((side) => Math.round(side * density));
  const pen = canvas.getContext("2d");
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  pen.reset();
  pen.scale(density, density);
  return pen;
}

const inside = ([x, y], [left, top, width, height]) => x >= left && x < left + width && y >= top && y < top + height;

// The number of the cell at a point, -1 where there is none.
function cellAt(cells, point) {
  for (let index = 0; index < cells.count; index++) if (inside(point, cells.box(index))) return index;
  return -1;
}

const NARROW = 480; // CSS pixels of a figure
const REMEMBERED = 200; // pictures of a figure
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const PINS = ["Enter", " "];
const KEPT = [...Object.keys(ARROWS), ...PINS, "Escape"];

function render({ model, el }) {
  const root = element(el, "div", { className: "attention-figure" });
  const row = element(root, "div", { className: "attention-panels" });
  row.setAttribute("role", "group");
  const readout = element(root, "p", { className: "attention-readout" });
  readout.setAttribute("role", "status");
  const caption = element(root, "p", { className: "attention-caption" });
  caption.setAttribute("aria-live", "polite");
  const error = element(root, "p", { role: "alert" });

  let controls = []; // models of the widgets that the picture follows, once they are there
  const names = Object.keys(model.get("controls"));
  let shown; // panels, caption and error
  const answers = new Map(); // of the kernel, by the settings of the controls, the oldest first
  const settings = () => JSON.stringify(controls.map((control) => control.get("index") ?? control.get("value")));

  const recall = () => {
    if (!answers.has(settings())) return;
    shown = answers.get(settings());
    paint();
  };

  // An answer that comes when the controls have moved on to one that is known is kept, and not shown.
  const take = () => {
    const answered = JSON.stringify(model.get("settings"));
    answers.set(answered, Object.fromEntries(["panels", "caption", "error"].map((name) => [name, model.get(name)])));
    if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
    if (answered !== settings() && answers.has(settings())) return;
    shown = answers.get(answered);
    paint();
  };

  // Where there is room for a phone's panels only, these are drawn; a figure has no width before it is in a page.
  const kinds = () => (root.clientWidth > 0 && root.clientWidth < NARROW ? FLAT : KINDS);
  let cells = []; // of each panel, or undefined
  let looked = { panel: -1, cell: -1 };
  let pinned = false;

  const look = (panel, cell) => {
    if (pinned || (looked.panel === panel && looked.cell === cell)) return;
    looked = { panel, cell };
    paint();
  };

  const pin = (panel, cell) => {
    const again = pinned && looked.panel === panel && looked.cell === cell;
    pinned = false;
    look(panel, cell);
    pinned = cell >= 0 && !again;
    paint();
  };

  const unpin = () => {
    pinned = false;
    paint();
  };

  // Sets the control that the bar drags, which asks the kernel for the picture.
  const drag = (control, value) => {
    const [low, high, step] = ["min", "max", "step"].map((name) => control.get(name));
    control.set("value", Math.max(low, Math.min(high, Number((Math.round(value / step) * step).toFixed(6)))));
    control.save_changes();
  };
  const draggedBy = (panel, cell) => controls[names.indexOf(cells[panel]?.control?.(cell))];

  const addPanel = (panel) => {
    const box = element(row, "div");
    element(box, "div", { className: "attention-title" });
    const canvas = element(box, "canvas");
    canvas.setAttribute("role", "img");
    const at = (event) => (cells[panel] ? cellAt(cells[panel], [event.offsetX, event.offsetY]) : -1);
    let held; // the control that is being dragged
    const moveTo = ({ offsetY }) => drag(held, cells[panel].valueAt(offsetY));
    canvas.addEventListener("pointermove", (event) => {
      const cell = at(event);
      canvas.style.cursor = held || draggedBy(panel, cell) ? "ns-resize" : "";
      if (held) moveTo(event);
      else look(panel, cell);
    });
    canvas.addEventListener("pointerdown", (event) => {
      look(panel, at(event));
      held = draggedBy(panel, at(event));
      if (!held) return;
      canvas.setPointerCapture(event.pointerId);
      moveTo(event);
    });
    canvas.addEventListener("pointerup", () => (held = undefined));
    canvas.addEventListener("pointercancel", () => (held = undefined));
    canvas.addEventListener("click", (event) => draggedBy(panel, at(event)) || pin(panel, at(event)));
    canvas.addEventListener("pointerleave", () => held || look(-1, -1));
    canvas.addEventListener("focus", () => looked.panel === panel || look(panel, 0));
    canvas.addEventListener("blur", () => look(-1, -1));
    canvas.addEventListener("keydown", (event) => {
      if (!KEPT.includes(event.key) || !cells[panel]) return;
      event.preventDefault();
      const from = looked.panel === panel ? Math.max(0, looked.cell) : 0;
      if (PINS.includes(event.key)) return pin(panel, from);
      if (event.key === "Escape") return unpin();
      const step = ARROWS[event.key];
      const control = draggedBy(panel, from);
      if (control && step[1]) return drag(control, cells[panel].value(from) - step[1] * control.get("step"));
      const [x, y, width, height] = cells[panel].box(from);
      const to = cellAt(cells[panel], [x + width * (0.5 + step[0]), y + height * (0.5 + 1.1 * step[1])]);
      pinned = false;
      look(panel, to < 0 ? from : to);
    });
  };

  // These keys move sliders, read cells and pin them here; the notebook would take them for shortcuts of its own.
  const keepKeys = ({ target, key }) => {
    if (target.closest?.(".attention-explorer, .attention-figure")?.contains(root)) {
      target.toggleAttribute("data-lm-suppress-shortcuts", KEPT.includes(key));
    }
  };

  const frame = (pen, box, width) => {
    pen.lineWidth = width;
    pen.strokeRect(...box);
  };

  const paint = () => {
    const { panels, caption: said, error: failed } = shown;
    while (row.children.length > panels.length) row.lastChild.remove();
    while (row.children.length < panels.length) addPanel(row.children.length);
    const theme = themeOf(document.body);
    const [drawing, phone] = [kinds(), kinds() === FLAT];
    root.classList.toggle("attention-narrow", phone);
    cells = panels.map((panel) => drawing[panel.kind].cells?.(panel));
    const seen = cells[looked.panel];
    const told = looked.cell >= 0 && looked.cell < seen?.count ? seen.tell(looked.cell) : "";
    const linked = (told && seen.axes?.(looked.cell)) || {};
    panels.forEach((panel, index) => {
      const box = row.children[index];
      const [title, canvas] = box.children;
      title.textContent = panel.title;
      canvas.setAttribute("aria-label", [panel.title, ...(panel.kind === "Text" ? panel.rows : [])].join("\n"));
      canvas.tabIndex = cells[index] ? 0 : -1;
      canvas.style.touchAction = panel.controls?.length ? "none" : "";
      const [width, height] = drawing[panel.kind].size(panel);
      [box.style.width, title.style.padding] = around(panel, drawing);
      const pen = penOf(canvas, width, height);
      drawing[panel.kind].draw(pen, panel, [width, height], theme);
      if (!told) return;
      pen.strokeStyle = pinned ? theme.purple : theme.text;
      for (const box of cells[index]?.marks?.(linked) ?? []) frame(pen, box, 1.5);
      if (index === looked.panel) frame(pen, seen.box(looked.cell), 3);
    });
    const others = cells.filter((other) => other !== seen).map((other) => other?.says?.(linked));
    const belongs = told && (product(panels, panels[looked.panel], linked) || others.filter(Boolean).join("; "));
    const words = told ? [pinned ? "Pinned: " : "", told, belongs && ` ${belongs}`].join("") : invitation(panels);
    error.textContent = failed && `This could not be drawn. ${failed.replace(/\.$/, "")}. Move a control to go on.`;
    row.style.opacity = failed ? 0.35 : 1;
    if (readout.textContent !== words) readout.textContent = words;
    if (caption.textContent !== said) caption.textContent = said;
    row.setAttribute("aria-label", `${panels.map((panel) => panel.title).join("; ")}. ${said}`);
    root.dataset.painted = Number(root.dataset.painted || 0) + 1;
  };

  take();
  model.on("change", take);
  Promise.all(Object.values(model.get("controls")).map((id) => model.widget_manager.get_model(id))).then((models) => {
    controls = models;
    controls.forEach((control) => control.on("change:value change:index", recall));
  });
  const theme = new MutationObserver(paint);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name"] });
  window.addEventListener("resize", paint); // zooming changes the pixel density
  let drawn = kinds();
  const width = new ResizeObserver(() => kinds() !== drawn && (drawn = kinds(), paint()));
  width.observe(root);
  window.addEventListener("keydown", keepKeys, true);
  return () => {
    model.off("change", take);
    controls.forEach((control) => control.off("change:value change:index", recall));
    theme.disconnect();
    width.disconnect();
    window.removeEventListener("resize", paint);
    window.removeEventListener("keydown", keepKeys, true);
  };
}

export default { render };
