// Trains the GPT of gpt.py in a thread of its own, with jax-js, which computes the gradients. The parameters have the
// names and shapes of the state dict, and a step is that of the loop in rung 8: AdamW, warmup, cosine decay, clipping.

import { defaultDevice, init, jit, nn, numpy as np, valueAndGrad } from "./jax/index.js";

const range = (length) => [...Array(length).keys()];
const tensor = ({ data, shape }) => np.array(Float32Array.from(data)).reshape(shape);
const each = (tree, change) => Object.fromEntries(Object.entries(tree).map(([name, value]) => [name, change(value, name)]));
const kept = (tree) => each(tree, (array) => array.ref); // jax-js frees an array when it is used, but for a .ref

const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

// The parameters of GPT as it initializes them, { data, shape } each.
export function initial({ vocab_size, block_size, n_layer, n_embd: C }) {
  const std = C ** -0.5;
  const random = (shape, scale = std) => ({ shape, data: range(shape[0] * shape[1]).map(() => scale * normal()) });
  const ones = () => ({ shape: [C], data: range(C).map(() => 1) });
  const half = Math.ceil(C / 2); // sines, and as many cosines: sinusoidal_positions
  const angle = (t, c) => t * Math.max(block_size / (2 * Math.PI), 1) ** -((c % half) / (half - 1));
  const wave = (t, c) => (c < half ? Math.sin : Math.cos)(angle(t, c));
  const positions = range(block_size).flatMap((t) => range(C).map((c) => std * wave(t, c)));
  const state = { "wte": random([vocab_size, C]), "wpe": { shape: [block_size, C], data: positions }, "ln_f": ones() };
  for (const layer of range(n_layer)) {
    const parts = { "ln_1": ones(), "attn.c_attn": random([3 * C, C]), "attn.c_proj": random([C, C], std * (2 * n_layer) ** -0.5) };
    Object.assign(parts, { "ln_2": ones(), "mlp.c_fc": random([4 * C, C]), "mlp.c_proj": random([C, 4 * C], std * (2 * n_layer) ** -0.5) });
    for (const [name, part] of Object.entries(parts)) state[`h.${layer}.${name}`] = part;
  }
  return Object.fromEntries(Object.entries(state).map(([name, part]) => [`transformer.${name}.weight`, part]));
}

const linear = (x, weight) => np.matmul(x, np.transpose(weight)); // (N, in) @ (out, in)^T -> (N, out)

function layerNorm(x, weight) {
  const centred = x.ref.sub(x.mean(-1, { keepdims: true }));
  const variance = np.square(centred.ref).mean(-1, { keepdims: true });
  return centred.div(np.sqrt(variance.add(1e-5))).mul(weight);
}

// The mean cross-entropy of a batch, given as one-hot rows x, y (B T, V), and the causal mask (T, T), 0 or -1e9.
function lossOf({ n_layer, n_head, n_embd: C, block_size: T }, weights, x, y, mask) {
  const N = x.shape[0];
  const weight = (name) => weights[`transformer.${name}.weight`].ref;
  let stream = np.matmul(x, weight("wte")).reshape([N / T, T, C]).add(weight("wpe")).reshape([N, C]);
  for (const layer of range(n_layer)) {
    const part = (name) => weight(`h.${layer}.${name}`);
    const qkv = linear(layerNorm(stream.ref, part("ln_1")), part("attn.c_attn")).reshape([N / T, T, 3, n_head, C / n_head]);
    const [q, k, v] = range(3).map((at) => np.transpose(qkv.ref.slice([], [], at), [0, 2, 1, 3])); // (B, heads, T, C / heads)
    const scores = np.matmul(q, np.transpose(k, [0, 1, 3, 2])).mul((C / n_head) ** -0.5).add(mask.ref);
    const heads = np.transpose(np.matmul(nn.softmax(scores), v), [0, 2, 1, 3]).reshape([N, C]);
    stream = stream.add(linear(heads, part("attn.c_proj")));
    const hidden = nn.gelu(linear(layerNorm(stream.ref, part("ln_2")), part("mlp.c_fc")), { approximate: false });
    stream = stream.add(linear(hidden, part("mlp.c_proj")));
  }
  const logits = linear(layerNorm(stream, weight("ln_f")), weight("wte"));
  return nn.logSoftmax(logits).mul(y).sum().mul(-1 / N);
}

// Returns a function that takes a batch, ids x, y of B T tokens, and returns the loss before its step; and one that
// returns the parameters.
export async function trainer(config, recipe, state) {
  await init("wasm");
  defaultDevice("wasm");
  const { vocab_size: V, block_size: T } = config;
  const { beta2, clip, weight_decay: decay, learning_rate, final_learning_rate, steps, warmup } = recipe;
  const update = jit((weights, means, squares, x, y, mask, rate, unbiased, unbiasedSquare) => {
    const [loss, gradients] = valueAndGrad((...given) => lossOf(config, ...given))(kept(weights), x, y, mask);
    const norm = np.sqrt(Object.values(gradients).map((one) => np.square(one.ref).sum()).reduce((one, other) => one.add(other)));
    const scale = np.minimum(np.array(clip).div(norm.add(1e-6)), 1);
    const next = [{}, {}, {}];
    for (const [name, gradient] of Object.entries(gradients)) {
      const clipped = gradient.mul(scale.ref);
      const mean = means[name].mul(0.9).add(clipped.ref.mul(0.1));
      const square = squares[name].mul(beta2).add(np.square(clipped).mul(1 - beta2));
      const direction = mean.ref.div(unbiased.ref).div(np.sqrt(square.ref.div(unbiasedSquare.ref)).add(1e-8));
      const shrunk = state[name].shape.length < 2 ? weights[name] : weights[name].ref.sub(weights[name].mul(rate.ref.mul(decay)));
      const moved = shrunk.sub(direction.mul(rate.ref));
      [moved, mean, square].forEach((value, at) => (next[at][name] = value));
    }
    return [loss, ...next];
  });
  const mask = tensor({ shape: [T, T], data: range(T * T).map((at) => (at % T > Math.floor(at / T) ? -1e9 : 0)) });
  const zeros = () => each(state, ({ shape }) => np.zeros(shape));
  let [weights, means, squares] = [each(state, tensor), zeros(), zeros()];
  const hot = (ids) => {
    const rows = new Float32Array(ids.length * V);
    ids.forEach((id, at) => (rows[at * V + id] = 1));
    return np.array(rows).reshape([ids.length, V]);
  };
  let done = 0;
  const step = (x, y) => {
    const falling = 0.5 * (1 + Math.cos((Math.PI * (done - warmup)) / Math.max(1, steps - warmup)));
    const rate = done < warmup ? (learning_rate * (done + 1)) / warmup : final_learning_rate + falling * (learning_rate - final_learning_rate);
    done += 1;
    const numbers = [rate, 1 - 0.9 ** done, 1 - beta2 ** done].map((one) => np.array(one));
    let loss;
    [loss, weights, means, squares] = update(weights, means, squares, hot(x), hot(y), mask.ref, ...numbers);
    return loss.js();
  };
  return { step, state: () => each(weights, (value, name) => ({ data: value.ref.dataSync(), shape: state[name].shape })) };
}

// A batch of B blocks, cut from ids, a Uint8Array, at random places.
function draw(ids, T, B) {
  const starts = range(B).map(() => Math.floor(Math.random() * (ids.length - T)));
  return [0, 1].map((shift) => starts.flatMap((start) => [...ids.subarray(start + shift, start + shift + T)]));
}

self.onmessage = async ({ data: { config, recipe, ids, every } }) => {
  const { step, state } = await trainer(config, recipe, initial(config));
  for (let done = 1; done <= recipe.steps; done++) {
    const loss = step(...draw(ids, config.block_size, recipe.batch_size));
    postMessage({ done, loss, state: done % every && done < recipe.steps ? undefined : state() });
  }
};
