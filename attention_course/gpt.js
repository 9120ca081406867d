// The GPT of gpt.py in a page: the same parts under the same names, in the same order, for one text at a time.
// A tensor (T, C) is a list of T vectors, and its shapes are those of gpt.py without B.

const range = (length) => [...Array(length).keys()];
const add = (x, y) => x.map((one, t) => one.map((value, c) => value + y[t][c])); // (T, C) + (T, C)
export const argmax = (values) => values.indexOf(Math.max(...values));

export function softmax(scores) {
  const best = Math.max(...scores);
  const exp = Array.from(scores, (score) => Math.exp(score - best));
  const sum = exp.reduce((one, other) => one + other);
  return exp.map((value) => value / sum);
}

// nn.Linear without bias: (T, in) @ (out, in)^T -> (T, out)
function linear(x, { weight: { data, shape } }) {
  const [outputs, inputs] = shape;
  return x.map((one) => {
    const y = new Float32Array(outputs);
    for (let o = 0, at = 0; o < outputs; o++) {
      let sum = 0;
      for (let i = 0; i < inputs; i++) sum += one[i] * data[at++];
      y[o] = sum;
    }
    return y;
  });
}

// nn.Embedding: ids (T,) -> (T, n_embd)
const embedding = (ids, { weight: { data, shape } }) => ids.map((id) => data.subarray(id * shape[1], (id + 1) * shape[1]));

// nn.LayerNorm without bias, at each position
function layerNorm(x, { weight: { data } }) {
  return x.map((one) => {
    const mean = one.reduce((sum, value) => sum + value, 0) / one.length;
    const variance = one.reduce((sum, value) => sum + (value - mean) ** 2, 0) / one.length;
    return one.map((value, c) => ((value - mean) / Math.sqrt(variance + 1e-5)) * data[c]);
  });
}

// F.gelu, x Φ(x), with the erf of Abramowitz and Stegun (1964, formula 7.1.26), which is off by at most 1.5e-7
function gelu(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  const t = 1 / (1 + 0.3275911 * z);
  const series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return 0.5 * x * (1 + Math.sign(x) * (1 - series * Math.exp(-z * z)));
}

// Multi-head attention. `past` holds the key, value and weights of each position, and grows by those of x, one after
// the other: so a query sees the keys up to its own, as causal_mask has it.
function attention(x, { c_attn, c_proj }, n_head, past) {
  const C = x[0].length;
  const head_size = C / n_head;
  const output = linear(x, c_attn).map((one) => {
    const [q, k, v] = range(3).map((part) => one.subarray(part * C, (part + 1) * C)); // (n_head head_size,) each
    const position = { k, v, weights: [] };
    past.push(position);
    const y = new Float32Array(C); // of all heads, side by side
    for (let from = 0; from < C; from += head_size) {
      const scores = past.map(({ k }) => {
        let dot = 0;
        for (let c = from; c < from + head_size; c++) dot += q[c] * k[c];
        return dot * head_size ** -0.5;
      });
      const weights = softmax(scores); // (T_k,)
      position.weights.push(weights);
      past.forEach(({ v }, s) => {
        for (let c = from; c < from + head_size; c++) y[c] += weights[s] * v[c];
      });
    }
    return y;
  });
  return linear(output, c_proj);
}

const mlp = (x, { c_fc, c_proj }) => linear(linear(x, c_fc).map((one) => one.map(gelu)), c_proj);

function block(x, parts, n_head, past) {
  x = add(x, attention(layerNorm(x, parts.ln_1), parts.attn, n_head, past));
  return add(x, mlp(layerNorm(x, parts.ln_2), parts.mlp));
}

// The probabilities (V,) from which `generate` samples: of the top_k best tokens, sharper below temperature 1.
export function probabilitiesOf(logits, temperature, top_k) {
  const worst = [...logits].sort((one, other) => other - one)[top_k - 1];
  const best = argmax(logits);
  if (temperature === 0) return Array.from(logits, (_, id) => Number(id === best));
  return softmax(Array.from(logits, (logit) => (logit < worst ? -Infinity : logit / temperature)));
}

export class GPT {
  cache = { ids: [], logits: [] };

  // `state` is the state dict, as a tree: transformer.h[0].attn.c_attn.weight is { data, shape }.
  constructor({ config, characters, transformer }) {
    Object.assign(this, { config, characters, transformer });
    this.cache.layers = range(config.n_layer).map(() => []);
  }

  // ids (T,) -> logits (T, V), of tokens that follow those in the cache, which is extended by them
  forward(ids) {
    if (!ids.length) return [];
    const { wte, wpe, h, ln_f } = this.transformer;
    const start = this.cache.ids.length;
    let x = add(embedding(ids, wte), embedding(ids.map((_, t) => start + t), wpe)); // (T, n_embd)
    this.cache.layers.forEach((past, layer) => (x = block(x, h[layer], this.config.n_head, past)));
    return linear(layerNorm(x, ln_f), wte); // weight tying: (T, V)
  }

  encode(text) {
    return [...text].map((character) => this.characters.indexOf(character));
  }

  // What the model makes of a text: logits[t], and layers[layer][t].weights[head]. What the text has in common with the
  // beginning of the last one is not computed anew.
  read(ids) {
    const { cache } = this;
    const other = ids.findIndex((id, t) => id !== cache.ids[t]);
    const kept = other < 0 ? ids.length : other;
    [cache.ids, cache.logits, ...cache.layers].forEach((list) => list.splice(kept));
    cache.logits.push(...this.forward(ids.slice(kept)));
    cache.ids.push(...ids.slice(kept));
    return cache;
  }

  // Draws by the largest of p / e, with e from an exponential distribution, as torch.multinomial does.
  generate(ids, max_new_tokens, temperature, top_k, random = Math.random) {
    for (let step = 0; step < max_new_tokens; step++) {
      const logits = this.read(ids.slice(-this.config.block_size)).logits.at(-1); // (V,), of the token after the last
      const drawn = argmax(probabilitiesOf(logits, temperature, top_k).map((p) => p / -Math.log(random())));
      ids = [...ids, drawn]; // (T + 1,)
    }
    return ids;
  }
}

function half(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  return (bits >> 15 ? -1 : 1) * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

// A GPT with these parameters, { data, shape } each, by their names in the state dict.
export function assembled(config, characters, parameters) {
  const state = { config, characters };
  for (const [name, weight] of Object.entries(parameters)) {
    const module = name.split(".").slice(0, -1); // transformer, h, 0, attn, c_attn
    module.reduce((node, key) => (node[key] ??= {}), state).weight = weight;
  }
  return new GPT(state);
}

// Reads a file of safetensors: the length of the header, the header as JSON, and numbers in half precision.
export function parse(bytes) {
  const length = new DataView(bytes).getUint32(0, true);
  const { __metadata__: about, ...tensors } = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  const { config, characters } = JSON.parse(about.gpt);
  const read = ([name, { shape, data_offsets }]) => {
    const [from, to] = data_offsets.map((offset) => 8 + length + offset);
    return [name, { shape, data: Float32Array.from(new Uint16Array(bytes.slice(from, to)), half) }];
  };
  return assembled(config, characters, Object.fromEntries(Object.entries(tensors).map(read)));
}

export async function load(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the model could not be loaded: ${response.status} ${response.statusText}`);
  return parse(await response.arrayBuffer());
}
