// The transformer: what nmt/model computes in inference, one sentence at a time, in fp32.
// Activations are rows of Float32 in the memory of the kernel, named by their byte address.
// Legend: D model dim, H heads, E = D / H, V types.

const LANES = 16; // the kernel multiplies rows of a multiple of this many numbers

class Transformer {
  // settings: the head of model.js. bytes: its weights, in the order of settings.tensors.
  constructor(settings, bytes, kernel) {
    this.settings = settings;
    this.dim = settings.model.dim;
    this.tensors = new Map();
    let size = 0;
    for (const [name, ...shape] of settings.tensors) {
      const outs = shape.length < 2 ? 1 : shape[0], width = shape[shape.length - 1] ?? 1;
      const padded = shape.length < 2 ? width : padTo(width, LANES);
      this.tensors.set(name, {at: size, outs, width, padded, length: outs * width, matrix: shape.length > 1});
      size += padTo(4 * outs * padded, 64);
    }
    const zeros = Math.max(...Array.from(this.tensors.values(), ({outs}) => outs));
    this.zeros = size; // a bias of layers without one
    this.base = this.top = size + 4 * padTo(zeros, LANES);
    this.memory = new WebAssembly.Memory({initial: Math.ceil(this.base / 65536) + 16});
    this.multiply = new WebAssembly.Instance(kernel, {e: {m: this.memory}}).exports.f32;
    this.floats = new Float32Array(this.memory.buffer);
    this.#widen(bytes);
    this.positions = [];
  }

  // Weights are stored in fp32, fp16 or int8 with a scale for each row.
  #widen(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset), storage = this.settings.storage;
    const half = storage === "fp16" ? halves() : null;
    let place = 0;
    for (const {at, outs, width, padded, matrix} of this.tensors.values())
      for (let row = 0; row < outs; row++) {
        const target = this.floats.subarray(at / 4 + row * padded, at / 4 + row * padded + width);
        if (!matrix || storage === "fp32")
          for (let i = 0; i < width; i++, place += 4) target[i] = view.getFloat32(place, true);
        else if (half)
          for (let i = 0; i < width; i++, place += 2) target[i] = half[view.getUint16(place, true)];
        else {
          const scale = view.getFloat32(place, true);
          place += 4;
          for (let i = 0; i < width; i++, place++) target[i] = view.getInt8(place) * scale;
        }
      }
  }

  has(name) { return this.tensors.has(name); }

  values(name) {
    const {at, length} = this.tensors.get(name);
    return this.floats.subarray(at / 4, at / 4 + length);
  }

  // Memory for rows, until `release`.
  allocate(count) {
    const at = this.top;
    this.top += padTo(4 * count, 64);
    const missing = this.top - this.memory.buffer.byteLength;
    if (missing > 0) {
      this.memory.grow(Math.ceil(missing / 65536) + 64);
      this.floats = new Float32Array(this.memory.buffer);
    }
    return at;
  }

  release() { this.top = this.base; }

  linear(x, rows, name, bias = `${name}.bias`, weight = `${name}.weight`) {
    const {at, outs, width, padded} = this.tensors.get(weight);
    if (padded !== width) {
      const wide = this.allocate(rows * padded);
      for (let row = 0; row < rows; row++) {
        const start = wide / 4 + row * padded;
        this.floats.copyWithin(start, x / 4 + row * width, x / 4 + (row + 1) * width);
        this.floats.fill(0, start + width, start + padded);
      }
      x = wide;
    }
    const y = this.allocate(rows * outs);
    this.multiply(x, at, this.has(bias) ? this.tensors.get(bias).at : this.zeros, y, rows, padded, outs);
    return y;
  }

  // LayerNorm has a bias, RMSNorm a gain for each dimension, and ScaleNorm one gain. In place.
  norm(x, rows, name, width = this.dim, stride = width) {
    const {floats} = this, {norm_eps: eps} = this.settings.model, scale = this.has(`${name}.g`);
    const gain = this.values(scale ? `${name}.g` : `${name}.weight`);
    const bias = this.has(`${name}.bias`) ? this.values(`${name}.bias`) : null;
    for (let row = 0; row < rows; row++) {
      const start = x / 4 + row * stride, end = start + width;
      let mean = 0, squares = 0;
      if (bias) {
        for (let i = start; i < end; i++) mean += floats[i];
        mean /= width;
      }
      for (let i = start; i < end; i++) squares += (floats[i] - mean) ** 2;
      const factor = scale ? gain[0] / Math.max(Math.sqrt(squares), eps) : 1 / Math.sqrt(squares / width + eps);
      for (let i = 0; i < width; i++)
        floats[start + i] = (floats[start + i] - mean) * factor * (scale ? 1 : gain[i]) + (bias ? bias[i] : 0);
    }
    return x;
  }

  // The residual connection: norm before the branch (PreNorm) or after the sum (PostNorm).
  residual(x, rows, name, branch) {
    const pre = this.settings.model.norm_place === "pre", count = rows * this.dim;
    let input = x;
    if (pre) {
      input = this.allocate(count);
      this.floats.copyWithin(input / 4, x / 4, x / 4 + count);
      this.norm(input, rows, `${name}.norm`);
    }
    const h = branch(input);
    if (this.has(`${name}.branch_norm.weight`) || this.has(`${name}.branch_norm.g`))
      this.norm(h, rows, `${name}.branch_norm`);
    const {floats} = this, scale = this.has(`${name}.scale`) ? this.values(`${name}.scale`) : null;
    for (let i = 0; i < count; i++) {
      const skip = floats[x / 4 + i];
      floats[h / 4 + i] += scale ? skip * scale[scale.length > 1 ? i % this.dim : 0] : skip;
    }
    return pre ? h : this.norm(h, rows, `${name}.norm`);
  }

  feedForward(x, rows, name) {
    const gated = this.settings.model.activation === "geglu";
    const {outs} = this.tensors.get(`${name}.fc1.weight`), width = gated ? outs / 2 : outs;
    const h = this.linear(x, rows, `${name}.fc1`), {floats} = this;
    const activate = ACTIVATIONS[this.settings.model.activation];
    for (let row = 0; row < rows; row++)
      for (let i = 0; i < width; i++) {
        const value = floats[h / 4 + row * outs + i];
        floats[h / 4 + row * width + i] = activate(value) * (gated ? floats[h / 4 + row * outs + width + i] : 1);
      }
    if (this.has(`${name}.norm.weight`) || this.has(`${name}.norm.g`)) this.norm(h, rows, `${name}.norm`, width);
    return this.linear(h, rows, `${name}.fc2`);
  }

  // Norms of what is side by side in rows, such as queries, keys and values.
  normParts(x, rows, name, parts) {
    const stride = parts.length * this.dim;
    parts.forEach((part, index) => {
      const norm = `${name}.${part}_norm`;
      if (this.has(`${norm}.weight`) || this.has(`${norm}.g`))
        this.norm(x + 4 * index * this.dim, rows, norm, this.dim, stride);
    });
    return x;
  }

  // Attention of rows of queries; memoryOf(row) has keys and values [S, D] and the number S.
  attend(queries, stride, rows, memoryOf) {
    const {dim} = this, {heads} = this.settings.model, size = dim / heads, scale = 1 / Math.sqrt(size);
    const y = this.allocate(rows * dim), {floats} = this;
    for (let row = 0; row < rows; row++) {
      const {keys, values, count} = memoryOf(row), weights = new Float32Array(count);
      for (let head = 0; head < heads; head++) {
        const q = queries / 4 + row * stride + head * size, result = y / 4 + row * dim + head * size;
        let highest = -Infinity, sum = 0;
        for (let s = 0; s < count; s++) {
          const k = s * dim + head * size;
          let product = 0;
          for (let e = 0; e < size; e++) product += floats[q + e] * keys[k + e];
          weights[s] = product * scale;
          if (weights[s] > highest) highest = weights[s];
        }
        for (let s = 0; s < count; s++) sum += weights[s] = Math.exp(weights[s] - highest);
        for (let e = 0; e < size; e++) floats[result + e] = 0;
        for (let s = 0; s < count; s++) {
          const weight = weights[s] / sum, v = s * dim + head * size;
          for (let e = 0; e < size; e++) floats[result + e] += weight * values[v + e];
        }
      }
    }
    return y;
  }

  // Word vectors and positions; the position of row r is first + r * step.
  embed(ids, first, step, table, side) {
    const {dim} = this, x = this.allocate(ids.length * dim), root = Math.sqrt(dim), {floats} = this;
    const {at, padded} = this.tensors.get(this.has(table) ? table : "embed.weight");
    ids.forEach((id, row) => {
      const position = this.position(first + row * step, side);
      for (let i = 0; i < dim; i++)
        floats[x / 4 + row * dim + i] = root * floats[at / 4 + id * padded + i] + position[i];
    });
    const norm = `${side}.norm`;
    return this.has(`${norm}.weight`) || this.has(`${norm}.g`) ? this.norm(x, ids.length, norm) : x;
  }

  position(index, side) {
    const {positions: kind} = this.settings.model, name = `${side}.positions.weight`;
    if (kind === "learned") {
      const {at, padded} = this.tensors.get(name);
      return this.floats.subarray(at / 4 + index * padded, at / 4 + index * padded + this.dim);
    }
    const half = this.dim / 2, fairseq = kind === "fairseq";
    while (this.positions.length <= index) {
      const angle = this.positions.length + (fairseq ? 2 : 0), vector = new Float32Array(this.dim);
      for (let i = 0; i < half; i++) {
        const rate = Math.exp(i * -Math.log(10000) / (fairseq ? Math.max(half - 1, 1) : half));
        vector[2 * i] = Math.sin(angle * rate);
        vector[2 * i + 1] = Math.cos(angle * rate);
      }
      this.positions.push(vector);
    }
    return this.positions[index];
  }

  // Columns of rows as an array of their own, which later products do not overwrite.
  #columns(x, rows, parts, part) {
    const {dim, floats} = this, copy = new Float32Array(rows * dim);
    for (let row = 0; row < rows; row++) {
      const start = x / 4 + (row * parts + part) * dim;
      copy.set(floats.subarray(start, start + dim), row * dim);
    }
    return copy;
  }

  // Encode a source; return keys and values of each decoder layer.
  encode(ids) {
    const {dim} = this, {enc_layers, dec_layers, norm_place} = this.settings.model, count = ids.length;
    this.release();
    let x = this.embed(ids, 0, 1, "src_embed.weight", "src_input");
    for (let layer = 0; layer < enc_layers; layer++) {
      const name = `encoder.layers.${layer}`;
      x = this.residual(x, count, `${name}.self_attn_res`, (h) => {
        const qkv = this.linear(h, count, `${name}.self_attn.qkv`);
        this.normParts(qkv, count, `${name}.self_attn`, ["q", "k", "v"]);
        const memory = {keys: this.#columns(qkv, count, 3, 1), values: this.#columns(qkv, count, 3, 2), count};
        return this.linear(this.attend(qkv, 3 * dim, count, () => memory), count, `${name}.self_attn.out`);
      });
      x = this.residual(x, count, `${name}.ffn_res`, (h) => this.feedForward(h, count, `${name}.ffn`));
    }
    if (norm_place === "pre") this.norm(x, count, "encoder.norm");
    const memory = [];
    for (let layer = 0; layer < dec_layers; layer++) {
      const name = `decoder.layers.${layer}.cross_attn`, kv = this.linear(x, count, `${name}.kv`);
      this.normParts(kv, count, name, ["k", "v"]);
      memory.push({keys: this.#columns(kv, count, 2, 0), values: this.#columns(kv, count, 2, 1), count});
    }
    return memory;
  }

  // The keys and values of one hypothesis.
  newState(size = 32) {
    const {dec_layers} = this.settings.model, length = size * this.dim;
    return Array.from({length: dec_layers},
      () => ({keys: new Float32Array(length), values: new Float32Array(length), count: 0}));
  }

  // Read one token of each hypothesis at a position; return the logits of the next [rows, V].
  step(tokens, position, memory, states) {
    const {dim} = this, {dec_layers, norm_place} = this.settings.model, rows = tokens.length;
    this.release();
    let x = this.embed(tokens, position, 0, "embed.weight", "tgt_input");
    for (let layer = 0; layer < dec_layers; layer++) {
      const name = `decoder.layers.${layer}`;
      x = this.residual(x, rows, `${name}.self_attn_res`, (h) => {
        const qkv = this.linear(h, rows, `${name}.self_attn.qkv`);
        this.normParts(qkv, rows, `${name}.self_attn`, ["q", "k", "v"]);
        states.forEach((state, row) => append(state[layer], this.floats, qkv / 4 + (3 * row + 1) * dim, dim));
        const mixed = this.attend(qkv, 3 * dim, rows, (row) => states[row][layer]);
        return this.linear(mixed, rows, `${name}.self_attn.out`);
      });
      x = this.residual(x, rows, `${name}.cross_attn_res`, (h) => {
        const q = this.normParts(this.linear(h, rows, `${name}.cross_attn.q`), rows, `${name}.cross_attn`, ["q"]);
        return this.linear(this.attend(q, dim, rows, () => memory[layer]), rows, `${name}.cross_attn.out`);
      });
      x = this.residual(x, rows, `${name}.ffn_res`, (h) => this.feedForward(h, rows, `${name}.ffn`));
    }
    if (norm_place === "pre") this.norm(x, rows, "decoder.norm");
    const table = this.has("out_embed.weight") ? "out_embed.weight" : "embed.weight";
    const logits = this.linear(x, rows, "", "out_bias", table) / 4, {outs} = this.tensors.get(table);
    return Array.from(tokens, (_, row) => this.floats.subarray(logits + row * outs, logits + (row + 1) * outs));
  }
}

const padTo = (count, multiple) => Math.ceil(count / multiple) * multiple;

// Add keys and values, which are side by side, to those of a hypothesis.
function append(cache, floats, start, dim) {
  const place = cache.count * dim;
  if (place === cache.keys.length)
    for (const name of ["keys", "values"]) {
      const larger = new Float32Array(2 * place);
      larger.set(cache[name]);
      cache[name] = larger;
    }
  cache.keys.set(floats.subarray(start, start + dim), place);
  cache.values.set(floats.subarray(start + dim, start + 2 * dim), place);
  cache.count++;
}

const copyState = (state) =>
  state.map(({keys, values, count}) => ({keys: keys.slice(), values: values.slice(), count}));

function erf(x) { // Abramowitz and Stegun 7.1.26; its error is below 1.5e-7
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  swish: (x) => x / (1 + Math.exp(-x)),
  gelu,
  geglu: gelu,
};

function halves() { // the value of each fp16 number
  return Float32Array.from({length: 65536}, (_, bits) => {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24;
    return bits >> 15 ? -size : size;
  });
}
