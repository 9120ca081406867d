// A page that is only as real as the scripts need: nodes with attributes and listeners, and a clock that a test moves.

class Page {
  static now = 0;
  static waiting = []; // of frames and timers: when, what
  static next = 0;
  static later(what, when) {
    Page.waiting.push({ id: ++Page.next, what, when });
    return Page.next;
  }
  static pass(ms) {
    Page.now += ms;
    const due = Page.waiting.filter(({ when }) => when <= Page.now);
    Page.waiting = Page.waiting.filter(({ when }) => when > Page.now);
    due.forEach(({ what }) => what(Page.now));
  }
}

class Listeners {
  listeners = [];
  addEventListener(type, listen) {
    this.listeners.push([type, listen]);
  }
  dispatchEvent({ type }) {
    this.fire(type);
  }
  removeEventListener(type, listen) {
    this.listeners = this.listeners.filter(([one, other]) => one !== type || other !== listen);
  }
  // Whether a listener prevented what the browser would do.
  fire(type, event = {}) {
    let prevented = false;
    const whole = { type, target: this, preventDefault: () => (prevented = true), ...event };
    this.listeners.filter(([one]) => one === type).forEach(([, listen]) => listen(whole));
    return prevented;
  }
}

class Node extends Listeners {
  attributes = {};
  children = [];
  classes = new Set();
  dataset = {};
  style = {
    setProperty(name, value) {
      this[name] = value;
    },
  };
  text = "";
  isConnected = true;
  classList = {
    add: (name) => this.classes.add(name),
    toggle: (name, on) => (on ? this.classes.add(name) : this.classes.delete(name)),
  };
  constructor(tag) {
    super();
    this.tag = tag;
  }
  get textContent() {
    return this.text + this.children.map((node) => node.textContent).join("");
  }
  set textContent(text) {
    this.replaceChildren();
    this.text = String(text);
  }
  appendChild(node) {
    node.parentNode?.removeChild(node);
    this.children.push(node);
    node.parentNode = this;
    node.isConnected = true;
    return node;
  }
  append(...nodes) {
    nodes.forEach((node) => this.appendChild(node));
  }
  querySelectorAll() {
    return [];
  }
  insertBefore(node) {
    return this.appendChild(node);
  }
  removeChild(node) {
    this.children = this.children.filter((child) => child !== node);
    node.isConnected = false;
  }
  remove() {
    this.parentNode.removeChild(this);
  }
  replaceChildren() {
    this.children = [];
  }
  get firstChild() {
    return this.children[0];
  }
  get lastChild() {
    return this.children.at(-1);
  }
  contains(node) {
    return node === this || this.children.some((child) => child.contains(node));
  }
  closest() {
    return null;
  }
  matches(tag) {
    return this.tag === tag;
  }
  querySelector() {
    return null;
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  toggleAttribute(name, on) {
    if (on) this.attributes[name] = "";
    else delete this.attributes[name];
  }
  getBoundingClientRect() {
    return { left: 100, top: 50, width: 640 };
  }
  setPointerCapture() {}
  hasPointerCapture() {
    return false;
  }
  getTotalLength() {
    return 0;
  }
  getPointAtLength() {
    return { x: 0, y: 0 };
  }
  getContext() {
    const measureText = (text) => ({ width: 6 * text.length });
    return new Proxy({ measureText }, { get: (pen, name) => pen[name] ?? (() => {}) });
  }
}

const document = {
  body: new Node("body"),
  head: new Node("head"),
  createElement: (tag) => new Node(tag),
  createElementNS: (_, tag) => new Node(tag),
};
const window = Object.assign(new Listeners(), { devicePixelRatio: 1, innerWidth: 1280 });
const motion = { matches: true }; // the reader has nothing against motion
const matchMedia = () => motion;
const performance = { now: () => Page.now };
const requestAnimationFrame = (draw) => Page.later(draw, Page.now);
const setTimeout = (what, ms) => Page.later(what, Page.now + ms);
const cancelAnimationFrame = (id) => (Page.waiting = Page.waiting.filter((each) => each.id !== id));
const getComputedStyle = () => ({ getPropertyValue: () => "" });
class MouseEvent {
  constructor(type) {
    this.type = type;
  }
}
class ResizeObserver {
  observe() {}
  disconnect() {}
}
class MutationObserver {
  observe() {}
  disconnect() {}
}
