/* A model of Dickens that computes in the page. A `.gk-model` element names a model; the script `_static/NAME.js`, which
   the build writes from data/models/NAME (book/_ext/model.py), holds its weights. Here are gkalib.models.gpt's forward
   pass for a decoder without positions but the bank of Gaussian Process Attention, and a bank that a reader drags. */

(function () {
  "use strict";

  const HANDLES = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 127]; // lags at which the bank is dragged
  const DEEPEST = -20; // below it no log-weight is drawn
  const SHOWN = 8; // letters
  const WRITTEN = 80; // letters at a press of the button
  const BIN = (raw) => Uint8Array.from(atob(raw), (one) => one.charCodeAt(0)).buffer;

  /* The tensors of a safetensors file by name, as numbers in their order. */
  function tensors(buffer) {
    const length = Number(new DataView(buffer).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    delete header.__metadata__;
    const part = ({ data_offsets: [from, to] }) => new Float32Array(buffer.slice(8 + length + from, 8 + length + to));
    return Object.fromEntries(Object.entries(header).map(([name, one]) => [name, part(one)]));
  }

  // The error function to 1.5e-7 (Abramowitz and Stegun 7.1.26), of GELU.
  function erf(x) {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return Math.sign(x) * (1 - sum * Math.exp(-x * x));
  }

  function linear(weights, name, x, rows) {
    const matrix = weights[`${name}.weight`], bias = weights[`${name}.bias`];
    const outputs = bias.length, inputs = matrix.length / outputs, out = new Float64Array(rows * outputs);
    for (let t = 0; t < rows; t++) {
      for (let o = 0; o < outputs; o++) {
        let sum = bias[o];
        for (let i = 0; i < inputs; i++) sum += matrix[o * inputs + i] * x[t * inputs + i];
        out[t * outputs + o] = sum;
      }
    }
    return out;
  }

  function layerNorm(weights, name, x, rows) {
    const scale = weights[`${name}.weight`], shift = weights[`${name}.bias`], dim = scale.length;
    const out = new Float64Array(x.length);
    for (let t = 0; t < rows; t++) {
      const row = x.subarray(t * dim, (t + 1) * dim);
      const mean = row.reduce((sum, one) => sum + one, 0) / dim;
      const spread = Math.sqrt(row.reduce((sum, one) => sum + (one - mean) ** 2, 0) / dim + 1e-5);
      for (let i = 0; i < dim; i++) out[t * dim + i] = ((row[i] - mean) / spread) * scale[i] + shift[i];
    }
    return out;
  }

  /* G(Δ) of each layer and head at every lag of the context (gkalib.kernels.DecayingPeriodicBank). */
  function banks(weights, { depth, num_heads: heads, context }) {
    return Array.from({ length: depth }, (_, layer) => {
      const [alpha, sigma, length, tau] = ["alpha", "sigma", "log_length", "log_tau"].map(
        (name) => weights[`blocks.${layer}.attn.kernel.second.${name}`]);
      const terms = alpha.length / heads;
      return Array.from({ length: heads }, (_, head) => Float64Array.from({ length: context }, (_, lag) => {
        let sum = 0;
        for (let m = head * terms; m < (head + 1) * terms; m++) {
          const wave = Math.sin(lag / Math.exp(tau[m]));
          sum += sigma[m] ** 2 * Math.exp(-lag / Math.exp(length[m]) - 2 * alpha[m] ** 2 * wave ** 2);
        }
        return sum;
      }));
    });
  }

  /* Logits after each of some tokens, and of each layer and head the weights of the last one. A memory, as `memory` makes
     it, holds keys and values of the tokens before these, and then of these too. */
  function forward({ weights, settings }, ids, bank, kept = memory(settings)) {
    const { dim, num_heads: heads } = settings, n = ids.length, width = dim / heads, last = [], earlier = kept.filled;
    const table = weights["embedding.weight"];
    const x = Float64Array.from({ length: n * dim }, (_, i) => table[ids[Math.floor(i / dim)] * dim + (i % dim)]);
    const add = (more) => more.forEach((one, i) => { x[i] += one; });
    kept.layers.forEach(({ key, value }, layer) => {
      const block = `blocks.${layer}`, normed = layerNorm(weights, `${block}.norm1`, x, n);
      const query = linear(weights, `${block}.attn.query`, normed, n), mixed = new Float64Array(n * dim);
      key.set(linear(weights, `${block}.attn.key`, normed, n), earlier * dim);
      value.set(linear(weights, `${block}.attn.value`, normed, n), earlier * dim);
      last.push([]);
      for (let head = 0; head < heads; head++) {
        for (let i = 0; i < n; i++) {
          const at = earlier + i, row = new Float64Array(at + 1);
          for (let j = 0; j <= at; j++) {
            let dot = 0;
            for (let c = head * width; c < (head + 1) * width; c++) dot += query[i * dim + c] * key[j * dim + c];
            row[j] = dot / Math.sqrt(width) + bank[layer][head][at - j];
          }
          const share = softmax(row);
          for (let j = 0; j <= at; j++) {
            for (let c = head * width; c < (head + 1) * width; c++) mixed[i * dim + c] += share[j] * value[j * dim + c];
          }
          if (i === n - 1) last[layer].push(share);
        }
      }
      add(linear(weights, `${block}.attn.proj`, mixed, n));
      const inner = linear(weights, `${block}.mlp.fc`, layerNorm(weights, `${block}.norm2`, x, n), n);
      add(linear(weights, `${block}.mlp.proj`, inner.map((one) => (one * (1 + erf(one / Math.SQRT2))) / 2), n));
    });
    kept.filled += n;
    const logits = linear(weights, "head", layerNorm(weights, "norm", x, n), n), size = logits.length / n;
    return { logits: Array.from({ length: n }, (_, t) => logits.subarray(t * size, (t + 1) * size)), last };
  }

  function memory({ depth, context, dim }) {
    const rows = () => new Float64Array(context * dim);
    return { filled: 0, layers: Array.from({ length: depth }, () => ({ key: rows(), value: rows() })) };
  }

  function softmax(scores) {
    const largest = scores.reduce((most, one) => Math.max(most, one), -Infinity);
    const similar = scores.map((one) => Math.exp(one - largest)), total = similar.reduce((sum, one) => sum + one, 0);
    return similar.map((one) => one / total);
  }

  /* The mean of −log p of each letter but the first, in nats. */
  function loss(ids, logits) {
    const each = ids.slice(1).map((id, t) => -Math.log(softmax(logits[t])[id]));
    return each.reduce((sum, one) => sum + one, 0) / each.length;
  }

  function make(parent, name, attributes) {
    const svg = name === "svg" || parent.namespaceURI.endsWith("svg");
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    return parent.appendChild(node);
  }

  const minus = (number, digits) => number.toFixed(digits).replace("-", "\u2212");
  const seen = (symbol) => ({ " ": "space", "\n": "line end" })[symbol] || symbol;

  function build(root, stored) {
    const model = { settings: stored.settings, weights: tensors(BIN(stored.weights)) };
    const { depth, num_heads: heads, context } = stored.settings, symbols = stored.symbols;
    const trained = banks(model.weights, stored.settings), copy = () => trained.map((layer) => layer.map((one) => one.slice()));
    const state = { bank: copy(), layer: 0, head: 0, ids: [] };
    root.replaceChildren();
    const field = make(root, "label", { class: "gk-typed" });
    make(field, "span").textContent = `Text (the last ${context} letters are read)`;
    const text = make(field, "textarea", { rows: 3, spellcheck: "false", autocomplete: "off" });
    text.value = root.dataset.text;
    const read = make(root, "p", { class: "gk-read", "aria-hidden": "true" });
    const panels = make(root, "div", { class: "gk-panels" });
    const curve = make(make(panels, "div"), "svg", { role: "group", "aria-label": "The chosen head's bank against the lag" });
    const bars = make(make(panels, "div"), "svg", { role: "img" });
    const controls = make(root, "div", { class: "gk-controls" });
    const choose = (name, count) => {
      const label = make(controls, "label"), select = (make(label, "span").textContent = name, make(label, "select"));
      for (let i = 0; i < count; i++) make(select, "option", { value: i }).textContent = i + 1;
      select.addEventListener("change", () => { state[name] = Number(select.value); draw(); });
      return select;
    };
    const selects = [choose("layer", depth), choose("head", heads)];
    const button = (words, act) => {
      const node = make(controls, "button", { type: "button" });
      node.textContent = words;
      node.addEventListener("click", act);
    };
    button("Flat in this head", () => { state.bank[state.layer][state.head].fill(0); draw(); });
    button("Flat in every head", () => { state.bank.flat().forEach((one) => one.fill(0)); draw(); });
    button("As trained", () => { state.bank = copy(); draw(); });
    button(`Write ${WRITTEN} letters`, write);
    const said = make(root, "p", { class: "gk-said", role: "status" });
    make(root, "p", { class: "gk-hint" }).textContent =
      "Drag the dots up and down, or Tab to one and use the arrow keys. The letters above are shaded by the weight that the chosen " +
      "head gives them when it predicts the next one.";

    let before = null; // of the text as it is, by the trained bank
    function ids() {
      return [...text.value].map((one) => symbols.indexOf(one)).filter((id) => id >= 0).slice(-context);
    }

    function compute() {
      const now = ids();
      if (!before || String(now) !== String(state.ids)) before = now.length ? forward(model, now, trained) : null;
      state.ids = now;
      return now.length ? forward(model, now, state.bank) : null;
    }

    /* Height of a place of the bank in the drawing: what counts in a row is the difference from the largest. */
    function drop(lag, handle, value) {
      const bank = state.bank[state.layer][state.head], at = HANDLES.indexOf(handle);
      const [low, high] = [HANDLES[at - 1] ?? handle, HANDLES[at + 1] ?? handle];
      const x = (one) => Math.log2(1 + one), by = value - bank[handle];
      for (let one = low; one <= high; one++) {
        const edge = one < handle ? low : high;
        const share = one === handle ? 1 : 1 - Math.abs(x(one) - x(handle)) / Math.abs(x(edge) - x(handle));
        bank[one] += share * by;
      }
      draw();
    }

    function drawBank() {
      const wide = curve.parentElement.clientWidth, left = 46, top = 24, width = wide - left - 16, height = 170;
      const bank = state.bank[state.layer][state.head], most = Math.max(...bank), first = trained[state.layer][state.head];
      const across = (lag) => left + (Math.log2(1 + lag) / Math.log2(context)) * width;
      const down = (value) => top + (Math.max(value, DEEPEST) / DEEPEST) * height;
      curve.setAttribute("width", wide);
      curve.setAttribute("height", top + height + 44);
      if (!curve.handles) {
        curve.frame = make(curve, "g", { class: "gk-frame", "aria-hidden": "true" });
        curve.before = make(curve, "path", { class: "gk-curve gk-trained", "aria-hidden": "true" });
        curve.now = make(curve, "path", { class: "gk-curve", "aria-hidden": "true" });
        curve.handles = HANDLES.map((lag) => {
          const node = make(curve, "g", { class: "gk-handle", role: "slider", tabindex: 0, "aria-label": `bank at lag ${lag}` });
          make(node, "circle", { class: "gk-hit", r: 13 });
          make(node, "circle", { class: "gk-dot", r: 4 });
          const height = () => state.bank[state.layer][state.head][lag];
          node.addEventListener("pointerdown", (event) => { node.setPointerCapture(event.pointerId); node.focus(); event.preventDefault(); });
          node.addEventListener("pointermove", (event) => {
            if (!node.hasPointerCapture(event.pointerId)) return;
            const y = event.clientY - curve.getBoundingClientRect().top, most = Math.max(...state.bank[state.layer][state.head]);
            drop(lag, lag, most + Math.min(3, Math.max(DEEPEST, ((y - 24) / 170) * DEEPEST)));
          });
          node.addEventListener("keydown", (event) => {
            const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
            if (!step) return;
            drop(lag, lag, height() + step * (event.shiftKey ? 5 : 1));
            event.preventDefault();
          });
          return node;
        });
      }
      curve.frame.replaceChildren();
      const word = (x, y, words, more) => { make(curve.frame, "text", { x, y, ...more }).textContent = words; };
      make(curve.frame, "path", { d: `M${left},${top}V${top + height}h${width}` });
      for (const lag of [0, 1, 3, 7, 15, 31, 63, 127]) word(across(lag), top + height + 18, lag, { "text-anchor": "middle" });
      for (const value of [0, -5, -10, -15, -20]) word(left - 6, down(value) + 4, minus(value, 0), { "text-anchor": "end" });
      word(left + width / 2, top + height + 38, "lag, in letters", { "text-anchor": "middle" });
      word(0, 12, "bank, minus its largest value");
      const path = (one) => {
        const top = Math.max(...one);
        return "M" + Array.from(one, (value, lag) => `${across(lag)},${down(value - top)}`).join("L");
      };
      curve.before.setAttribute("d", path(first));
      curve.now.setAttribute("d", path(bank));
      HANDLES.forEach((lag, i) => {
        const node = curve.handles[i], value = bank[lag] - most;
        node.setAttribute("transform", `translate(${across(lag)},${down(value)})`);
        const told = { "aria-valuemin": DEEPEST, "aria-valuemax": 3, "aria-valuenow": value, "aria-valuetext": minus(value, 1) };
        for (const [key, one] of Object.entries(told)) node.setAttribute(key, one);
      });
    }

    function drawLetters(result) {
      const wide = bars.parentElement.clientWidth, left = 76, room = wide - left - 52;
      const [now, then] = [result, before].map((one) => softmax(one.logits[one.logits.length - 1]));
      const order = [...now.keys()].sort((a, b) => now[b] - now[a]).slice(0, SHOWN);
      bars.replaceChildren();
      bars.setAttribute("width", wide);
      bars.setAttribute("height", 24 + 26 * SHOWN + 8);
      make(bars, "text", { x: 0, y: 12 }).textContent = "next letter: now, and as trained (gray)";
      order.forEach((id, i) => {
        const y = 24 + 26 * i;
        make(bars, "text", { x: left - 8, y: y + 15, "text-anchor": "end" }).textContent = seen(symbols[id]);
        make(bars, "rect", { class: "gk-chance", x: left, y: y + 3, width: room * now[id], height: 10 });
        make(bars, "rect", { class: "gk-chance gk-trained", x: left, y: y + 14, width: room * then[id], height: 5 });
        make(bars, "text", { x: left + room * Math.max(now[id], then[id]) + 6, y: y + 15 }).textContent = now[id].toFixed(2);
      });
      bars.setAttribute("aria-label", "Next letter: " + order.map((id) => `${seen(symbols[id])} ${now[id].toFixed(2)}`).join(", "));
      return [now, then];
    }

    function draw() {
      state.asked = state.asked || requestAnimationFrame(() => { state.asked = 0; show(); });
    }

    function show() {
      drawBank();
      const result = compute();
      read.replaceChildren();
      root.gkModel = { state, symbols, result };
      if (!result) { said.textContent = "Type some letters."; bars.replaceChildren(); return; }
      const row = result.last[state.layer][state.head];
      state.ids.forEach((id, j) => {
        const one = make(read, "span");
        one.textContent = symbols[id];
        one.style.setProperty("--gk-weight", `${Math.round(100 * Math.sqrt(row[j]))}%`);
      });
      drawLetters(result);
      const [now, then] = [result, before].map((one) => loss(state.ids, one.logits));
      said.textContent = state.ids.length < 2 ? "Type one more letter." :
        `Loss on this text: ${now.toFixed(3)} nats a letter; as trained ${then.toFixed(3)}.`;
    }

    function write() {
      let left = WRITTEN, kept = memory(stored.settings), fresh = ids();
      (function next() {
        if (!left-- || !fresh.length) return draw();
        if (kept.filled + fresh.length > context) [kept, fresh] = [memory(stored.settings), ids()]; // the window slides
        const { logits } = forward(model, fresh, state.bank, kept), chances = softmax(logits[fresh.length - 1]);
        let at = Math.random();
        const id = chances.findIndex((one) => (at -= one) < 0);
        fresh = [id < 0 ? chances.length - 1 : id];
        text.value += symbols[fresh[0]];
        text.scrollTop = text.scrollHeight;
        setTimeout(next);
      })();
    }

    text.addEventListener("input", draw);
    selects.forEach((one) => { one.value = 0; });
    root.gkForward = (ids, kept) => forward(model, ids, trained, kept || memory(stored.settings));
    root.gkMemory = () => memory(stored.settings);
    new ResizeObserver(draw).observe(root); // draws at once
  }

  function offer(root) {
    const name = root.dataset.model, button = make(root, "button", { type: "button" });
    button.textContent = `Load the model (${root.dataset.size})`;
    button.addEventListener("click", () => {
      button.disabled = true;
      const script = document.createElement("script");
      script.src = new URL(`${name}.js`, HERE);
      script.onload = () => build(root, window.gkStored[name]);
      document.head.append(script);
    });
  }

  const HERE = document.currentScript.src;
  window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".gk-model").forEach(offer));
})();
