// The explorer as the site computes it, as explorer.py does: its four scores are dragged, and have 101 values each.

import { numbers } from "./figure.js";

const QUERY = 2; // “poor”, which sees the keys up to it, if there is a mask

const entropyOf = (weights) => weights.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0);

// Puts the numbers of a setting into the panels of the first picture.
export default function compute(panels, { temperature, masked, ...dragged }) {
  const scores = Object.values(dragged).map((score, key) => (masked && key > QUERY ? -Infinity : score));
  const exp = scores.map((score) => Math.exp((score - Math.max(...scores)) / temperature));
  const sum = exp.reduce((one, other) => one + other);
  const weights = exp.map((value) => value / sum);
  const visible = scores.filter(Number.isFinite).length;
  const entropy = entropyOf(weights);
  const hidden = masked ? " The mask sets the score of “Sam” to −∞, whatever it was." : "";
  return {
    panels: [scores, exp, weights].map((heights, at) => ({ ...panels[at], heights, texts: numbers(heights) })),
    caption:
      `“poor” sees ${visible} keys. The entropy of its weights is ${entropy.toFixed(2)} nats, of at most ` +
      `ln ${visible} = ${Math.log(visible).toFixed(2)}, and the perplexity is ${Math.exp(entropy).toFixed(1)}.${hidden}`,
  };
}
