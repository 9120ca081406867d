// The explorer as the site computes it, as explorer_attention_over_text.py does, for any text that a visitor types.

import { numbers } from "./figure.js";
import { argmax, softmax } from "./gpt.js";

const BARS = 8; // tokens with the largest weights
const percent = (share) => `${(100 * share).toFixed(0)} %`;
export const visible = (text) => text.replaceAll("\n", "↵");
export const nameOf = (character) => visible(character).replaceAll(" ", "␣");

// The rows of a text, as plots.Text breaks it: after a newline, or between the last two words that fit.
export function rowsOf(text, columns) {
  const row = new RegExp(`[^\\n]{0,${columns - 1}}(?:[\\n ]|$)|[^\\n]{${columns}}`, "g");
  return text.match(row).filter(Boolean).map(visible);
}

export default function compute([text, bars], { layer, head, position: query }, gpt, typed) {
  const { layers, logits } = gpt.read(gpt.encode(typed));
  const T = logits.length;
  const weights = layers[layer][query].weights[head];
  const most = weights.map((weight, key) => ({ weight, key })).sort((one, other) => other.weight - one.weight);
  const named = most.slice(0, BARS).map(({ weight, key }) => ({ weight, key, name: nameOf(typed[key]) }));
  const heights = named.map(({ weight }) => weight);
  const probabilities = softmax([...logits[query]]);
  const expected = argmax(probabilities);
  const looks = named.slice(0, 3).map(({ weight, key, name }) => `${percent(weight)} on character ${key} “${name}”`);
  const follows = query + 1 < T ? `the text goes on with “${nameOf(typed[query + 1])}”` : "the text ends";
  return {
    panels: [
      { ...text, rows: rowsOf(typed, text.columns), values: [...weights, ...Array(T - 1 - query).fill(0)], framed: query },
      {
        ...bars,
        title: named.length > 1 ? "The largest weights" : "The only weight",
        heights,
        texts: numbers(heights),
        labels: named.map(({ key, name }) => `${key} ${name}`),
        reserved: named.length,
      },
    ],
    caption:
      `Layer ${layer}, head ${head}, query ${query} “${nameOf(typed[query])}”: ${looks.join(", ")}. ` +
      `The model's prediction for the next character is “${nameOf(gpt.characters[expected])}”, with ` +
      `probability ${percent(probabilities[expected])}; ${follows}.`,
  };
}
