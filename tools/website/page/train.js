// Trains the GPT of gpt.py in a thread of its own, with jax-js, which computes the gradients. The parameters have the
// names and shapes of the state dict, and a step is that of the loop in rung 8: AdamW, warmup, cosine decay, clipping.

import { defaultDevice, init, jit, nn, numpy as np, valueAndGrad } from "./jax/index.js";

const range = (length) => [...Array(length).keys()];
const tensor = ({ data, shape }) => np.array(Float32Array.from(data)).reshape(shape);
const each = (tree, change) => Object.fromEntries(Object.entries(tree).map(([name, value]) => [name, change(value, name)]));
const kept = (tree) => each(tree, (array) => array.ref); // jax-js frees an array when it is used, but for a .ref

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

// `starts` has the places in the text, ids, at which the blocks of each step begin.
self.onmessage = async ({ data: { config, recipe, parameters, ids, starts, every } }) => {
  const { step, state } = await trainer(config, recipe, parameters);
  for (const [at, places] of starts.entries()) {
    const [x, y] = [0, 1].map((shift) => places.flatMap((start) => [...ids.subarray(start + shift, start + shift + config.block_size)]));
    const loss = step(x, y);
    const done = at + 1;
    postMessage({ done, loss, state: done % every && done < starts.length ? undefined : state() });
  }
};
