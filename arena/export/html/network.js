// A network: layers in order, each of which takes its numbers from the weights in that order.
// layers.py, which writes them, says what each one is and how its numbers lie.

const LAYERS = {
  normalize(row, take, clip) {
    const mean = take(row.length), deviation = take(row.length);
    return row.map((value, at) => Math.min(clip, Math.max(-clip, (value - mean[at]) / deviation[at])));
  },

  planes(row, take, channels) {
    const cells = row.length / channels;
    return row.map((_, at) => row[(at % cells) * channels + Math.floor(at / cells)]);
  },

  convolution(planes, take, channels, outputs, height, width) {
    const weights = take(outputs * channels * 9), bias = take(outputs), cells = height * width;
    const out = new Float64Array(outputs * cells);
    for (let output = 0; output < outputs; output++) {
      out.fill(bias[output], output * cells, (output + 1) * cells);
      for (let channel = 0; channel < channels; channel++) {
        const from = channel * cells;
        for (let tap = 0; tap < 9; tap++) {
          // A cell reads its neighbour at (down, right); outside of the planes are zeros.
          const weight = weights[(output * channels + channel) * 9 + tap];
          const down = Math.floor(tap / 3) - 1, right = (tap % 3) - 1;
          const last = Math.min(width, width - right);
          for (let row = Math.max(0, -down); row < Math.min(height, height - down); row++) {
            const to = output * cells + row * width, at = from + (row + down) * width + right;
            for (let column = Math.max(0, -right); column < last; column++) {
              out[to + column] += weight * planes[at + column];
            }
          }
        }
      }
    }
    return out;
  },

  dense(row, take, outputs) {
    const weights = take(outputs * row.length), out = Float64Array.from(take(outputs));
    return out.map((bias, output) => {
      const from = output * row.length;
      return row.reduce((sum, value, at) => sum + value * weights[from + at], bias);
    });
  },

  relu: (row) => row.map((value) => Math.max(0, value)),

  residual(row, take, layers) {
    const change = through(layers, row, take);
    return row.map((value, at) => value + change[at]);
  },
};

function through(layers, row, take) {
  return layers.reduce((values, [name, ...sizes]) => LAYERS[name](values, take, ...sizes), row);
}

function decodeWeights(text) {
  return new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

// What a network says of an observation: a logit of each action, and the expected return, or null.
function judge(network, observation) {
  const row = Float64Array.from(observation), [mean, deviation] = network.unit;
  let at = 0;
  const take = (count) => network.weights.subarray(at, (at += count));
  const outputs = through(network.policy, row, take);
  const logits = outputs.subarray(0, network.actions);
  const value = network.value ? through(network.value, row, take)[0] : outputs[network.actions];
  return { logits, value: value === undefined ? null : value * deviation + mean };
}

// Probabilities of the legal actions; at temperature 0 all is on the likeliest.
function probabilities(logits, legal, temperature) {
  const best = Math.max(...logits.filter((_, action) => legal[action]));
  if (temperature === 0) {
    const likeliest = logits.findIndex((logit, action) => legal[action] && logit === best);
    return legal.map((_, action) => Number(action === likeliest));
  }
  const weights = legal.map((is, action) => (is ? Math.exp((logits[action] - best) / temperature) : 0));
  const sum = weights.reduce((one, other) => one + other);
  return weights.map((weight) => weight / sum);
}

function draw(chances) {
  const drawn = Math.random();
  let sum = 0;
  const action = chances.findIndex((chance) => (sum += chance) > drawn);
  // Rounding may leave the sum below the draw.
  return action < 0 ? chances.indexOf(Math.max(...chances)) : action;
}
