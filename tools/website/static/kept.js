// What a page remembers is a list of texts. A browser may refuse to keep anything: then the page alone remembers it, and
// page.js says so. Another page of the same server may write there what it likes: all that is no such list is as if
// never kept.

const refused = new Map();

export function recall(key) {
  try {
    const kept = refused.get(key) ?? JSON.parse(localStorage.getItem(key));
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

export function keep(key, texts) {
  try {
    localStorage.setItem(key, JSON.stringify(texts));
    refused.delete(key);
  } catch {
    refused.set(key, texts);
    document.dispatchEvent(new Event("refused"));
  }
}

// Keep lists of texts, pairs of a key and a list, all or none; return whether that went well.
export function keepAll(pairs) {
  const before = [];
  try {
    for (const [key, texts] of pairs) {
      before.push([key, localStorage.getItem(key)]);
      localStorage.setItem(key, JSON.stringify(texts));
    }
    for (const [key] of pairs) refused.delete(key);
    return true;
  } catch {
    for (const [key] of before) localStorage.removeItem(key); // first: it makes room
    for (const [key, text] of before) if (text !== null) localStorage.setItem(key, text);
    return false;
  }
}

export const FIRST = "attention-first "; // of a question: whether its first answer was "right" or "wrong"

// The names that are kept with a prefix, each with its texts.
export function keptBelow(prefix) {
  const keys = new Set(refused.keys());
  try {
    for (const key of Object.keys(localStorage)) keys.add(key);
  } catch {}
  return [...keys].filter((key) => key.startsWith(prefix)).map((key) => [key.slice(prefix.length), recall(key)]).filter(([, texts]) => texts.length);
}

// What was missed comes back, by the rules of attention_course/progress.py. An item is "question mean_at_one"; kept of it
// are the day when it is due, such as 2026-11-27, and after how many days that is.

export const REVIEW = "attention-review ";
export const DAYS = [1, 7, 30];

function dayIn(days) {
  const date = new Date();
  date.setDate(date.getDate() + days);
  return [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

export function isDay(text) {
  const date = new Date(/^(?!0000)\d{4}-\d\d-\d\d$/.test(text) ? text : NaN);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text); // there is no 31 February
}

// When an item is due; null if it is not in the review.
export function dueDay(item) {
  const [due, days] = recall(REVIEW + item);
  return isDay(due) && DAYS.includes(Number(days)) ? { due, days: Number(days) } : null;
}

export function isDue(item) {
  return dueDay(item)?.due <= dayIn(0);
}

// What was missed comes back tomorrow. What is right when it is due comes back after the next of DAYS, and in the end no more.
export function move(item, right) {
  if (right && !isDue(item)) return;
  const days = right ? DAYS.find((each) => each > dueDay(item).days) : DAYS[0];
  keep(REVIEW + item, days ? [dayIn(days), String(days)] : []);
}

// All items of the review, what is due first before the others.
export function scheduled() {
  const found = keptBelow(REVIEW).map(([item]) => [item, dueDay(item)]).filter(([, day]) => day);
  return found.sort(([, a], [, b]) => (a.due < b.due ? -1 : Number(a.due > b.due)));
}
