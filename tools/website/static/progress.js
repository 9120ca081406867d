// What was done, and the file of it that notebooks read and write as well, by the rules of attention_course/progress.py.

import { DAYS, FIRST, REVIEW, dueDay, isDay, keepAll, keptBelow, recall, scheduled } from "./kept.js";

const QUESTION = "attention-question ";
const TRY = "attention-try "; // a list: how many tries, "passed" or "", and the mistakes
const FILL = "attention-fill ";
const OTHERS = "attention-others"; // what a newer edition has put into the file: it stays

export const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const union = (...lists) => [...new Set(lists.flat())];

export function tried(name) {
  const [tries, isPassed, ...mistakes] = recall(TRY + name);
  const passed = isPassed === "passed";
  const least = Number(passed); // it takes at least one to pass
  return { tries: Number.isSafeInteger(Number(tries)) ? Math.max(least, Number(tries)) : least, passed, mistakes };
}

// Return as it is kept what is known of an exercise.
export const ofTries = (name, { tries, passed, mistakes }) => [TRY + name, [String(tries), passed ? "passed" : "", ...new Set(mistakes)]];

function othersKept() {
  try {
    return JSON.parse(recall(OTHERS)[0]) ?? {};
  } catch {
    return {};
  }
}

// Return the content of the file. How the first answer went is kept since it was given: its words may have changed.
// Where it is not, as by an older edition, `right` has the right answer of each question.
function written(right) {
  const questions = keptBelow(QUESTION).map(([name, answers]) => {
    const [first] = recall(FIRST + name);
    return [name, { answers, right_at_first_try: first ? first === "right" : answers[0] === right[name] }];
  });
  const exercises = keptBelow(TRY).map(([name]) => [name, tried(name)]);
  const content = { ...othersKept(), questions: Object.fromEntries(questions), exercises: Object.fromEntries(exercises), fills: Object.fromEntries(keptBelow(FILL)), review: Object.fromEntries(scheduled()) };
  return `${JSON.stringify(content, null, 2)}\n`;
}

export function save() {
  const text = written(JSON.parse(document.querySelector("#right")?.textContent ?? "{}"));
  const link = document.createElement("a");
  Object.assign(link, { href: `data:application/json;charset=utf-8,${encodeURIComponent(text)}`, download: "progress.json" }).click();
}

// A file is checked as a whole before anything of it is taken.

const short = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);

function check(fits, where, expected, got) {
  if (!fits) throw new TypeError(`${short(where)}: expected ${expected}, got ${short(JSON.stringify(got) ?? "nothing")}`);
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTexts = (value) => Array.isArray(value) && value.every((each) => typeof each === "string");
const TEXTS = [isTexts, "a list of texts", []];
const FLAG = [(value) => typeof value === "boolean", "true or false", false];

// Return the fields of an entry. Of each is given what it has to be, in code and in words, and what it is where it is left out.
// Others, of a newer edition, are passed over.
function fields(where, entry, given) {
  const names = Object.keys(given);
  check(isTable(entry), where, `an object with ${names.join(", ")}`, entry);
  return names.map((name) => {
    const [fits, expected, otherwise] = given[name];
    const value = Object.hasOwn(entry, name) ? entry[name] : otherwise;
    check(fits(value), `${name} of ${short(where)}`, expected, value);
    return value;
  });
}

// How each part of the file becomes what is kept, with what is kept already: keys, each with its texts.
const PARTS = {
  questions: (name, entry) => {
    const [answers, isRight] = fields(name, entry, { answers: TEXTS, right_at_first_try: FLAG });
    const own = recall(QUESTION + name);
    const first = own.length ? [] : [[FIRST + name, [isRight ? "right" : "wrong"]]];
    return [[QUESTION + name, union(own, answers)], ...first];
  },
  exercises: (name, entry) => {
    const [tries, passed, mistakes] = fields(name, entry, { tries: [Number.isSafeInteger, "a whole number", 0], passed: FLAG, mistakes: TEXTS });
    check(tries >= Number(passed), name, `tries of at least ${Number(passed)}`, tries);
    const own = tried(name);
    return [ofTries(name, { tries: Math.max(tries, own.tries), passed: passed || own.passed, mistakes: [...own.mistakes, ...mistakes] })];
  },
  fills: (name, levels) => {
    check(isTexts(levels), name, "a list of texts", levels);
    return [[FILL + name, union(recall(FILL + name), levels)]];
  },
  review: (item, entry) => {
    const [due, days] = fields(item, entry, { due: [isDay, "a day such as 2026-11-27"], days: [(value) => DAYS.includes(value), DAYS.join(" or ")] });
    return [[REVIEW + item, dueDay(item)?.due >= due ? recall(REVIEW + item) : [due, String(days)]]];
  },
};
const NOUNS = { questions: "question", exercises: "exercise", fills: "fill", review: "review date" };

// Return what a file changes, as [what, key, texts]: what, such as "exercises windowed_mean", may change under several keys.
function changes(text) {
  const content = JSON.parse(text);
  check(isTable(content), "the file", "an object with questions and exercises", content);
  const { questions, exercises, fills = {}, review = {}, ...others } = content;
  const all = Object.entries({ questions, exercises, fills, review }).flatMap(([part, entries]) => {
    check(isTable(entries), part, "an object with names", entries);
    return Object.entries(entries).flatMap(([name, entry]) => PARTS[part](name, entry).map((kept) => [`${part} ${name}`, ...kept]));
  });
  if (Object.keys(others).length) all.push(["others", OTHERS, [JSON.stringify({ ...othersKept(), ...others })]]);
  return all.filter(([, key, texts]) => JSON.stringify(texts) !== JSON.stringify(recall(key)));
}

// Take what a file has beyond what is kept, all or nothing; return a sentence about it.
export async function taken(file) {
  let found;
  try {
    found = changes(new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
  } catch (error) {
    const why = error instanceof SyntaxError ? "it is not JSON" : error.message;
    return `${file.name} is damaged, or holds something else, so nothing was changed (${why}).`;
  }
  if (!keepAll(found.map(([, ...kept]) => kept))) return `This browser could not keep what ${file.name} holds (${(file.size / 1e6).toFixed(1)} MB), so nothing was changed.`;
  const changed = union(found.map(([what]) => what));
  const numbers = Object.entries(NOUNS).map(([part, noun]) => [changed.filter((what) => what.startsWith(`${part} `)).length, noun]);
  const words = numbers.filter(([number]) => number).map(([number, noun]) => counted(number, noun));
  return words.length ? `Taken from ${file.name}: ${words.join(", ")}.` : `All that ${file.name} holds of exercises and questions was here already.`;
}
