// The explorer as the site computes it, as explorer_sampling.py does, for any prompt that a visitor types.

import { nameOf, rowsOf, visible } from "./attention_over_text.js";
import { numbers } from "./figure.js";
import { probabilitiesOf } from "./gpt.js";

const PALE = 0.3; // shade of the prompt
const PROMPT_ROWS = 4; // of a long prompt, the end is shown

// Mulberry32, by Tommy Ettinger: a seed gives the same numbers from 0 to 1 each time, others than PyTorch's.
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let bits = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

export default function compute([bars, text], { temperature, top_k, seed }, gpt, prompt) {
  const ids = gpt.encode(prompt);
  const logits = gpt.read(ids).logits.at(-1);
  const length = Math.min(text.columns, gpt.config.block_size - ids.length); // the model has room for no more
  const sample = gpt.generate(ids, length, temperature, top_k, generator(seed)).slice(ids.length);
  const probabilities = probabilitiesOf(logits, temperature, top_k);
  const best = [...logits.keys()].sort((one, other) => logits[other] - logits[one]).slice(0, bars.heights.length);
  const heights = best.map((id) => probabilities[id]);
  const labels = best.map((id) => nameOf(gpt.characters[id]));
  const before = prompt.slice(-PROMPT_ROWS * text.columns);
  const written = before + sample.map((id) => gpt.characters[id]).join("");
  const shown = visible(prompt.slice(-20));
  const entropy = probabilities.reduce((sum, p) => sum - (p > 0 ? p * Math.log(p) : 0), 0);
  return {
    panels: [
      {
        ...bars,
        title: `Probability of what follows “${shown}”`,
        heights,
        texts: numbers(heights),
        labels,
        label: `character; ${top_k > 1 ? `drawn among the best ${top_k}` : "the best is taken"}`,
      },
      { ...text, rows: rowsOf(written, text.columns), values: [...written].map((_, at) => (at < before.length ? PALE : 0)) },
    ],
    caption:
      `After “${shown}” the most probable character is “${labels[0]}”, with probability ` +
      `${(100 * Math.max(...probabilities)).toFixed(0)} %. Entropy of these probabilities: ${entropy.toFixed(2)} nats, ` +
      `out of at most ln ${logits.length} = ${Math.log(logits.length).toFixed(2)}.`,
  };
}
