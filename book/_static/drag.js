/* Figures that a reader drags. A `.gk-drag` element holds its data and a stored picture (gkalib.viz.drag); this script
   replaces the picture by a drawing whose keys, query and bandwidth move, and computes the average anew. Where the data
   says `process`, a click adds a point; where it says `own`, a reader adds points, chooses kernel, normalizer and degree, and finds
   all of it in the page's address. */

(function () {
  "use strict";

  const square = (q, k) => q.reduce((sum, one, i) => sum + (one - k[i]) ** 2, 0);
  // log κ(q, k) of the gkalib.kernels of these names with the bandwidth σ, and of ExpDot(1 / σ²).
  const SCORES = {
    Gaussian: (q, k, sigma) => -square(q, k) / (2 * sigma ** 2),
    Laplace: (q, k, sigma) => -Math.sqrt(square(q, k)) / sigma,
    Epanechnikov: (q, k, sigma) => Math.log(Math.max(0, 1 - square(q, k) / sigma ** 2)),
    Boxcar: (q, k, sigma) => (square(q, k) < sigma ** 2 ? 0 : -Infinity),
    ExpDot: (q, k, sigma) => q.reduce((sum, one, i) => sum + one * k[i], 0) / sigma ** 2,
  };
  const COLORS = {
    Gaussian: "var(--gk-blue)", ExpDot: "var(--gk-green)",
    adding: "var(--gk-blue)", delta: "var(--gk-green)", ridge: "var(--gk-orange)",
    process: "var(--gk-blue)", average: "var(--gk-orange)",
  };
  const DASHES = { adding: "7 4", delta: "none", ridge: "2 3", process: "none", average: "7 4" };
  const RIDGE = 1e-3; // of a memory that is fitted by least squares
  const FINE = 200; // steps of the curve
  const WIDEST = 80; // a line's width for a flow of 1
  const CELLS = 60; // of a field, along each axis
  const LEVELS = [0.05, 0.2, 0.5, 0.8, 0.95]; // above each of them a field is a shade darker

  const SLOPE = 1e-6; // the ridge of a line's slope, in units of the keys squared

  const shares = (scores) => {
    const largest = Math.max(...scores);
    if (largest === -Infinity) return scores.map(() => 0);
    const similar = scores.map((score) => Math.exp(score - largest)), total = similar.reduce((sum, one) => sum + one);
    return similar.map((one) => one / total);
  };
  // The weights that the gkalib.normalizers of these names make of a row of scores.
  const NORMALIZERS = {
    RowSum: shares,
    "TopK(3)": (scores) => {
      const order = [...scores.keys()].sort((a, b) => (scores[a] < scores[b]) - (scores[a] > scores[b])).slice(0, 3);
      return shares(scores.map((score, j) => (order.includes(j) ? score : -Infinity)));
    },
    Simplex: (scores) => {
      const largest = Math.max(...scores), moved = scores.map((score) => (score === -Infinity ? score : score - largest));
      let sum = 0, threshold = 0;
      moved.filter(Number.isFinite).sort((a, b) => b - a).forEach((score, r) => {
        sum += score;
        if (score > (sum - 1) / (r + 1)) threshold = (sum - 1) / (r + 1);
      });
      return moved.map((score) => Math.max(0, score - threshold));
    },
    Unnormalized: (scores) => scores.map(Math.exp),
  };

  /* The weights of the values: of degree 0 what the normalizer makes of the kernel, of degree 1 (on a line) those with
     which a line fitted around the query is read there. Zero where no key is seen. */
  function weights(query, { keys, sigma, degree, normalizer = "RowSum" }, kernel) {
    const row = NORMALIZERS[normalizer](keys.map((key) => SCORES[kernel](query, key, sigma)));
    if (!degree || !row.some(Boolean)) return row;
    const [mean] = average(row, keys), spread = row.reduce((sum, one, j) => sum + one * (keys[j][0] - mean) ** 2, 0);
    return row.map((one, j) => one * (1 - ((keys[j][0] - mean) * (mean - query[0])) / (spread + SLOPE)));
  }

  function average(row, values) {
    return values[0].map((_, axis) => row.reduce((sum, weight, j) => sum + weight * values[j][axis], 0));
  }

  /* A walk from key to key whose steps are drawn by the weights: in the long run, the share of its steps from i to j. */
  function flows(state, kernel) {
    const similar = state.keys.map((one) => state.keys.map((other) => Math.exp(SCORES[kernel](one, other, state.sigma))));
    const total = similar.flat().reduce((sum, one) => sum + one);
    return similar.map((row) => row.map((one) => one / total));
  }

  /* The weight that the chosen key would get from a query in the middle of each cell of the plane, row by row. */
  function field(state, kernel) {
    const middle = ([low, high], i) => low + ((i + 0.5) / CELLS) * (high - low), cells = [...Array(CELLS).keys()];
    return cells.flatMap((row) => cells.map((column) =>
      weights([middle(state.x, column), middle(state.y, row)], state, kernel)[state.chosen]));
  }

  const turned = ([degrees]) => [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  const dot = ([a, b], [c, d]) => a * c + b * d;

  /* The two numbers that a memory of pairs of a unit vector and a number holds once all are read, in their order. */
  const RULES = {
    adding: (state) => state.keys.reduce(([a, b], key, j) => {
      const [c, s] = turned(key), value = state.values[j][0];
      return [a + value * c, b + value * s];
    }, [0, 0]),
    delta: (state) => state.keys.reduce(([a, b], key, j) => {
      const [c, s] = turned(key), wrong = a * c + b * s - state.values[j][0];
      return [a - state.sigma * wrong * c, b - state.sigma * wrong * s];
    }, [0, 0]),
    ridge: (state) => {
      const keys = state.keys.map(turned), sum = (f) => keys.reduce((total, key) => total + f(key), 0);
      const [a, b, d] = [sum(([c]) => c * c) + RIDGE, sum(([c, s]) => c * s), sum(([, s]) => s * s) + RIDGE];
      const [x, y] = RULES.adding(state), size = a * d - b * b;
      return [(d * x - b * y) / size, (a * y - b * x) / size];
    },
  };

  /* What every rule makes of a state: the map, what it recalls for every key, and the mean squared error of that. */
  function memories(state) {
    return state.kernels.map((rule) => {
      const map = RULES[rule](state), recalled = state.keys.map((key) => dot(map, turned(key)));
      const squares = recalled.map((one, j) => (one - state.values[j][0]) ** 2);
      return { map, recalled, error: squares.reduce((sum, one) => sum + one) / squares.length };
    });
  }

  /* A Gaussian process whose covariance is the kernel, told the values with noise of the variance `state.process`:
     the mean and the standard deviation of its value at x. */
  function posterior(state) {
    const kappa = (x, key) => Math.exp(SCORES[state.kernels[0]]([x], key, state.sigma)), lower = [];
    const solved = (column) => column.reduce((found, one, i) => {
      found.push((one - found.reduce((sum, each, j) => sum + lower[i][j] * each, 0)) / lower[i][i]);
      return found;
    }, []);
    state.keys.forEach(([x], i) => { // Cholesky's factor of K + noise, row by row
      const row = solved(state.keys.slice(0, i).map((key) => kappa(x, key)));
      lower.push([...row, Math.sqrt(kappa(x, [x]) + state.process - row.reduce((sum, one) => sum + one * one, 0))]);
    });
    const answers = solved(state.values.map(([y]) => y));
    return (x) => {
      const row = solved(state.keys.map((key) => kappa(x, key)));
      const left = kappa(x, [x]) - row.reduce((sum, one) => sum + one * one, 0);
      return { mean: row.reduce((sum, one, i) => sum + one * answers[i], 0), deviation: Math.sqrt(Math.max(0, left)) };
    };
  }

  /* What the process, and the average by the same kernel, make of a state at places from the left edge to the right. */
  function predictions(state) {
    const at = posterior(state), places = Array.from({ length: FINE + 1 }, (_, i) => state.x[0] + (i / FINE) * (state.x[1] - state.x[0]));
    const found = places.map(at), averages = places.map((x) =>
      average(weights([x], state, state.kernels[0]), state.values)[0]);
    return { places, mean: found.map((one) => one.mean), deviation: found.map((one) => one.deviation), average: averages };
  }

  /* What every kernel makes of a state: weights of the query (the chosen key where there is none), their average of the
     values (of the keys where there are none), effective neighbors, and the trace of the keys' own weights; of a walk
     also its flows, and the share of its steps that stay where they are; of a field its numbers and their mean. */
  function numbers(state) {
    if (state.memory) return memories(state);
    if (state.process) return [predictions(state)];
    const query = state.query || state.keys[state.chosen];
    return state.kernels.map((kernel) => {
      const row = weights(query, state, kernel);
      const steps = state.walk && flows(state, kernel), shares = state.field && field(state, kernel);
      return {
        ...(shares && { field: shares, share: shares.reduce((sum, one) => sum + one) / shares.length }),
        ...(steps && { flows: steps, stays: steps.reduce((sum, one, i) => sum + one[i], 0) }),
        weights: row,
        estimate: average(row, state.values || state.keys),
        neighbors: row.some(Boolean) ? 1 / row.reduce((sum, one) => sum + one * one, 0) : 0,
        trace: state.keys.reduce((sum, key, i) => sum + weights(key, state, kernel)[i], 0),
      };
    });
  }

  /* A state in the address of the page, and back. */
  function address(state) {
    const points = state.keys.map((key, j) => `${+key[0].toFixed(3)},${+state.values[j][0].toFixed(3)}`).join(";");
    const { kernels: [kernel], normalizer, degree, sigma, query: [query] } = state;
    const told = { kernel, normalizer, degree, sigma: sigma.toFixed(3), query: query.toFixed(3), points };
    return "#" + Object.entries(told).map(([name, value]) => `${name}=${value}`).join("&");
  }

  function asked() {
    const told = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const points = (told.points || "").split(";").map((one) => one.split(",").map(Number));
    const numbers = [told.sigma, told.query, told.degree, ...points.flat()].map(Number);
    const { kernel, normalizer = "RowSum" } = told;
    if (!SCORES[kernel] || !NORMALIZERS[normalizer] || !numbers.every(Number.isFinite) || points.some((one) => one.length !== 2)) return {};
    const [sigma, query, degree] = numbers;
    return { kernels: [kernel], normalizer, degree: degree ? 1 : 0, sigma, query: [query], keys: points.map(([x]) => [x]), values: points.map(([, y]) => [y]) };
  }

  /* Axes and bandwidths that hold a reader's points. */
  function fitted(start, state) {
    const spread = (all) => {
      const [low, high] = [Math.min(...all), Math.max(...all)], room = 0.1 * (high - low || 1);
      return [low - room, high + room];
    };
    const inside = ([low, high], numbers) => numbers.every(([one]) => low <= one && one <= high);
    if (!inside(start.x, state.keys)) start.x = spread(state.keys.flat());
    if (!inside(start.y, state.values)) start.y = spread(state.values.flat());
    const width = start.x[1] - start.x[0];
    start.sigmas = [width / 100, width];
    state.sigma = Math.min(width, Math.max(width / 100, state.sigma));
    state.query = [Math.min(start.x[1], Math.max(start.x[0], state.query[0]))];
    [state.x, state.y] = [start.x, start.y];
  }

  function show(number) {
    const size = Math.abs(number);
    return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace("-", "\u2212");
  }

  function make(parent, name, attributes) {
    const svg = name === "svg" || parent.namespaceURI.endsWith("svg");
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    return parent.appendChild(node);
  }

  function ticks([low, high]) {
    const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((one) => one * power >= raw);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
  }

  function build(root) {
    const start = JSON.parse(root.dataset.drag), line = start.keys[0].length === 1;
    const state = structuredClone({ ...start, chosen: 0, ...(start.own && asked()) });
    if (start.own) fitted(start, state);
    const names = start.labels;
    root.querySelectorAll("img").forEach((one) => { one.hidden = true; });
    const svg = make(root, "svg", { role: "group", "aria-label": start.alt });
    const memory = start.memory; // one panel, with a curve for each rule
    const named = memory ? start.kernels : start.process ? ["process", "average"] : [], only = named.length > 0;
    const panels = (line ? [start.kernels[0], null] : start.kernels).slice(0, only ? 1 : 2).map((kernel) => ({ kernel }));
    const controls = make(root, "div", { class: "gk-controls" });
    const label = make(controls, "label");
    make(label, "span").textContent = names.sigma;
    const slider = make(label, "input", { type: "range", min: 0, max: 100, step: 1, autocomplete: "off" });
    const width = make(label, "output");
    const button = (words) => {
      const made = make(controls, "button", { type: "button" });
      made.textContent = words;
      return made;
    };
    const more = start.process && button(`One more ${names.key}`), again = button("Start again");
    const said = make(root, "p", { class: "gk-said", role: "status" });
    make(root, "p", { class: "gk-hint" }).textContent =
      (start.process ? `Click in the drawing for one more ${names.key}. ` : "") + "Drag with mouse or finger. With the keyboard: Tab to a dot, arrow keys move it (Shift: farther), " +
      `Page Up and Page Down choose another ${names.key}.`;

    const across = (panel, x) => panel.left + ((x - panel.x[0]) / (panel.x[1] - panel.x[0])) * panel.width;
    const down = (panel, y) => panel.top + ((panel.y[1] - y) / (panel.y[1] - panel.y[0])) * panel.height;
    const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
    const under = (panel, event) => { // the place in a panel that the pointer is at
      const box = svg.getBoundingClientRect();
      return [
        panel.x[0] + ((event.clientX - box.left - panel.left) / panel.width) * (panel.x[1] - panel.x[0]),
        panel.y[1] - ((event.clientY - box.top - panel.top) / panel.height) * (panel.y[1] - panel.y[0]),
      ];
    };
    const at = (index) => {
      if (index >= 0) return [state.keys[index][0], line ? state.values[index][0] : state.keys[index][1]];
      return [state.query[0], line ? start.y[1] : state.query[1]];
    };

    function move(index, x, y) {
      const point = index >= 0 ? state.keys[index] : state.query;
      point[0] = clamp(x, start.x);
      if (!line) point[1] = clamp(y, start.y);
      else if (index >= 0) state.values[index][0] = clamp(y, start.y);
      draw();
    }

    function handle(panel, index) {
      const first = panel === panels[0], query = index < 0;
      const group = make(panel.layer, "g", { class: query ? "gk-handle gk-query" : "gk-handle", role: "slider" });
      group.setAttribute("aria-label", query ? names.query : `${names.key} ${index + 1}`);
      if (!first) group.setAttribute("aria-hidden", "true");
      if (query && line) make(group, "path", { class: "gk-line" });
      if (!query && !only) make(group, "circle", { class: "gk-weight" });
      if (!query && (state.field || memory)) make(group, "text", { class: "gk-number", x: 9, y: -7 });
      make(group, "circle", { class: "gk-hit", r: 13 });
      make(group, query ? "path" : "circle", { class: "gk-dot", r: 4, d: line ? "M-8,-13h16l-8,13z" : "M-7,0h14M0,-7v14" });
      group.addEventListener("pointerdown", (event) => {
        if (!query) state.chosen = index;
        group.setPointerCapture(event.pointerId);
        draw();
        group.focus({ preventScroll: true });
        event.preventDefault();
      });
      group.addEventListener("pointermove", (event) => {
        if (group.hasPointerCapture(event.pointerId)) move(index, ...under(panel, event));
      });
      group.addEventListener("keydown", (event) => {
        const far = (event.shiftKey ? 10 : 1) / 100, [x, y] = at(index);
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key];
        const page = { PageUp: -1, PageDown: 1 }[event.key];
        if (step) {
          const dx = query && line ? step[0] + step[1] : step[0];
          move(index, x + dx * far * (start.x[1] - start.x[0]), y + step[1] * far * (start.y[1] - start.y[0]));
        } else if (page && !query) {
          state.chosen = (index + page + state.keys.length) % state.keys.length;
          draw();
          panel.handles[state.chosen].focus();
        } else return;
        event.preventDefault();
      });
      return group;
    }

    function fill(panel) {
      panel.layer.replaceChildren();
      panel.handles = state.keys.map((_, index) => handle(panel, index));
      if (state.query) panel.query = handle(panel, -1);
    }

    for (const panel of panels) {
      panel.shades = state.field ? LEVELS.map(() => make(svg, "path", { class: "gk-shade", "aria-hidden": "true" })) : [];
      panel.frame = make(svg, "g", { class: "gk-frame", "aria-hidden": "true" });
      panel.steps = make(svg, "g", { class: "gk-steps", "aria-hidden": "true" });
      panel.band = start.process && make(svg, "path", { class: "gk-band", "aria-hidden": "true" });
      panel.curve = make(svg, "path", { class: "gk-curve", "aria-hidden": "true" });
      panel.curves = named.map((rule) => {
        const curve = make(svg, "path", { class: "gk-curve", "stroke-dasharray": DASHES[rule], "aria-hidden": "true" });
        curve.style.setProperty("--gk-tint", COLORS[rule]);
        return curve;
      });
      panel.mark = make(svg, "circle", { class: "gk-mark", r: only ? 0 : 6, "aria-hidden": "true" });
      panel.layer = make(svg, "g");
      if (line && panel !== panels[0]) continue;
      fill(panel);
      for (const node of [panel.curve, panel.mark]) node.style.setProperty("--gk-tint", COLORS[panel.kernel]);
    }

    function layout() {
      const wide = root.clientWidth, left = 58, room = wide - left - 14, side = !line && wide > 560;
      panels.forEach((panel, p) => {
        const height = line ? [250, 70][p] : Math.min(300, side ? room / panels.length : room);
        const share = side ? (room - 50) / panels.length : room;
        const top = 28 + (line ? p * 304 : side ? 0 : p * (height + 70));
        Object.assign(panel, { left: left + (side ? p * (share + 50) : 0), top, width: share, height });
        panel.x = start.x;
        panel.y = line && p ? (state.degree ? [-1, 2] : [0, 1]) : start.y;
        panel.frame.replaceChildren();
        const bottom = panel.top + height, word = (x, y, text, more) => {
          make(panel.frame, "text", { x, y, ...more }).textContent = text;
        };
        make(panel.frame, "path", { d: `M${panel.left},${top}V${bottom}h${share}` });
        for (const x of ticks(panel.x)) word(across(panel, x), bottom + 18, +x.toPrecision(6), { "text-anchor": "middle" });
        for (const y of line && p ? (state.degree ? [-1, 0, 1, 2] : [0, 0.5, 1]) : ticks(panel.y)) {
          word(panel.left - 6, down(panel, y) + 4, `${+y.toPrecision(6)}`.replace("-", "\u2212"), { "text-anchor": "end" });
        }
        word(panel.left + share / 2, bottom + 36, names.x, { "text-anchor": "middle" });
        word(panel.left - (line ? 44 : 0), top - 14, line ? (p ? "weight" : names.y) : panel.kernel);
        named.forEach((rule, r) => {
          const y = top - 18, x = panel.left + share - 80 * (named.length - r) + 26, more = { style: `stroke: ${COLORS[rule]}` };
          make(panel.frame, "path", { d: `M${x - 22},${y}h18`, "stroke-width": 2, "stroke-dasharray": DASHES[rule], ...more });
          word(x, top - 14, rule);
        });
      });
      const last = panels[panels.length - 1];
      svg.setAttribute("width", wide);
      svg.setAttribute("height", last.top + last.height + 44);
      draw();
    }

    function draw() {
      const results = numbers(state);
      if (start.own && told !== address(state)) {
        told = address(state);
        clearTimeout(timer);
        timer = setTimeout(() => history.replaceState(null, "", told), 300);
      }
      panels.forEach((panel, p) => {
        const result = results[line ? 0 : p];
        if (line && p) {
          const stem = (key, j) => `M${across(panel, key[0])},${down(panel, 0)}V${down(panel, clamp(result.weights[j], panel.y))}`;
          return panel.curve.setAttribute("d", state.keys.map(stem).join(""));
        }
        const place = (node, x, y) => node.setAttribute("transform", `translate(${across(panel, x)},${down(panel, y)})`);
        const grid = Array.from({ length: FINE + 1 }, (_, i) => start.x[0] + (i / FINE) * (start.x[1] - start.x[0]));
        const through = (curve, fit) =>
          curve.setAttribute("d", "M" + grid.map((x) => `${across(panel, x)},${down(panel, clamp(fit(x), panel.y))}`).join("L"));
        panel.handles.forEach((group, j) => {
          const [x, y] = at(j);
          place(group, x, y);
          group.classList.toggle("gk-chosen", (!state.query || state.field) && j === state.chosen);
          group.setAttribute("tabindex", p === 0 && j === state.chosen ? 0 : -1);
          if (memory) {
            group.querySelector(".gk-number").textContent = j + 1;
            const said = results.map((one, r) => `${state.kernels[r]} recalls ${show(one.recalled[j])}`).join(", ");
            return tell(group, y, start.y, `${show(x)} degrees, value ${show(y)}, ${said}`);
          }
          if (start.process) return tell(group, y, start.y, `${show(x)}, ${show(y)}`);
          group.querySelector(".gk-weight").setAttribute("r", 24 * Math.sqrt(Math.min(1, Math.max(0, result.weights[j]))));
          if (state.field) group.querySelector(".gk-number").textContent = show(result.weights[j]);
          tell(group, line ? y : x, line ? start.y : start.x, `${show(x)}, ${show(y)}, weight ${show(result.weights[j])}`);
        });
        if (start.process) {
          const line = (ys) => ys.map((y, i) => `${across(panel, result.places[i])},${down(panel, clamp(y, panel.y))}`);
          const edge = (sign) => line(result.mean.map((one, i) => one + 2 * sign * result.deviation[i]));
          panel.band.setAttribute("d", `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z`);
          panel.curves.forEach((curve, r) => curve.setAttribute("d", "M" + line(r ? result.average : result.mean).join("L")));
        } else panel.curves.forEach((curve, r) => through(curve, (x) => dot(results[r].map, turned([x]))));
        if (only) return;
        if (panel.query) {
          place(panel.query, ...at(-1));
          if (line) panel.query.querySelector(".gk-line").setAttribute("d", `M0,0V${panel.height}`);
          panel.query.setAttribute("tabindex", p === 0 ? 0 : -1);
          tell(panel.query, state.query[0], start.x, state.query.map(show).join(", "));
        }
        panel.shades.forEach((shade, l) => {
          const width = panel.width / CELLS, height = panel.height / CELLS;
          const cell = (share, i) => share > LEVELS[l] ? `M${panel.left + (i % CELLS) * width},` +
            `${panel.top + panel.height - Math.floor(i / CELLS) * height}h${width}v${-height}h${-width}z` : "";
          shade.setAttribute("d", result.field.map(cell).join(""));
        });
        if (state.walk) {
          panel.steps.replaceChildren();
          state.keys.forEach(([x, y], i) => state.keys.slice(0, i).forEach(([u, v], j) => make(panel.steps, "path", {
            d: `M${across(panel, x)},${down(panel, y)}L${across(panel, u)},${down(panel, v)}`,
            "stroke-width": WIDEST * result.flows[i][j],
          })));
        }
        place(panel.mark, line ? state.query[0] : result.estimate[0], line ? result.estimate[0] : result.estimate[1]);
        if (line) {
          through(panel.curve, (x) => average(weights([x], state, state.kernels[0]), state.values)[0]);
        }
      });
      const [low, high] = start.sigmas;
      slider.value = (100 * Math.log(state.sigma / low)) / Math.log(high / low);
      slider.setAttribute("aria-valuetext", show(state.sigma));
      width.textContent = show(state.sigma);
      const [process] = results, among = start.process && process.deviation;
      said.textContent = start.process ? `${state.keys.length} ${names.key}s; standard deviation from ` +
        `${show(Math.min(...among))} to ${show(Math.max(...among))}` : memory ? results.map((one, r) =>
        `${state.kernels[r]}: recalls ${one.recalled.map(show).join(", ")}; mean squared error ${show(one.error)}`).join(". ")
        : results.map((one, p) => (line ? "" : `${state.kernels[p]}: `) + (state.field
        ? `the chosen ${names.key} gets ${show(one.weights[state.chosen])}, on average over the plane ${show(one.share)}`
        : `estimate ${one.estimate.map(show).join(", ")}; ` + (state.degree || state.normalizer === "Unnormalized" ? "" : `effective neighbors ${show(one.neighbors)}; `) +
          `tr W ${show(one.trace)}` + (state.walk ? `; of its steps the walk stays in ${show(one.stays)}` : ""))).join(". ");
    }

    function tell(group, value, [low, high], text) {
      const aria = { "aria-valuenow": value, "aria-valuemin": low, "aria-valuemax": high, "aria-valuetext": text };
      for (const [key, one] of Object.entries(aria)) group.setAttribute(key, one);
    }

    slider.addEventListener("input", () => {
      const [low, high] = start.sigmas;
      state.sigma = low * (high / low) ** (slider.value / 100);
      draw();
    });
    again.addEventListener("click", () => {
      Object.assign(state, structuredClone({ ...start, chosen: 0 }));
      if (start.own) return renew();
      if (start.process) fill(panels[0]);
      draw();
    });

    function add(x, y) {
      state.chosen = state.keys.push([clamp(x, start.x)]) - 1;
      state.values.push([clamp(y, start.y)]);
      fill(panels[0]);
      draw();
    }

    if (start.process) {
      svg.addEventListener("click", (event) => {
        const [x, y] = under(panels[0], event), inside = x >= start.x[0] && x <= start.x[1] && y >= start.y[0] && y <= start.y[1];
        if (inside && !event.target.closest(".gk-handle")) add(x, y);
      });
      more.addEventListener("click", () => { // where the band is widest, on the mean
        const { places, mean, deviation } = predictions(state), widest = deviation.indexOf(Math.max(...deviation));
        add(places[widest], mean[widest]);
      });
    }

    /* Points of the reader's own: other ones, another kernel or degree, all of it in the address. */
    function renew() {
      fitted(start, state);
      state.chosen = Math.min(state.chosen, state.keys.length - 1);
      fill(panels[0]);
      // A line needs weights that sum to one, and exponentials of dot products can exceed every number.
      const fits = (name) => name === "RowSum" || !(state.degree || (name === "Unnormalized" && state.kernels[0] === "ExpDot"));
      if (!fits(state.normalizer)) state.normalizer = "RowSum";
      for (const option of menus.normalizer.options) option.disabled = !fits(option.value);
      for (const [name, menu] of Object.entries(menus)) menu.value = name === "kernel" ? state.kernels[0] : state[name];
      if (document.activeElement !== points) points.value = state.keys.map((key, j) => `${+key[0].toFixed(3)}, ${+state.values[j][0].toFixed(3)}`).join("\n");
      layout();
    }

    const menus = {};
    let points = null, timer = 0, told = start.own && address(state);
    if (start.own) {
      const menu = (name, options, change) => {
        const label = make(controls, "label");
        make(label, "span").textContent = name;
        menus[name] = make(label, "select");
        for (const [value, words] of options) make(menus[name], "option", { value }).textContent = words;
        menus[name].addEventListener("change", () => { change(menus[name].value); renew(); });
      };
      menu("kernel", Object.keys(SCORES).map((one) => [one, one]), (value) => { state.kernels = [value]; });
      menu("normalizer", Object.keys(NORMALIZERS).map((one) => [one, one]), (value) => { state.normalizer = value; });
      menu("degree", [[0, "0, a constant"], [1, "1, a line"]], (value) => { state.degree = Number(value); });
      const label = make(root, "label", { class: "gk-typed" });
      make(label, "span").textContent = "Points, one x, y a line: paste your own, or double-click in the drawing to add one";
      points = make(label, "textarea", { rows: 4, spellcheck: "false", autocomplete: "off" });
      points.addEventListener("input", () => {
        const rows = points.value.split("\n").map((row) => row.trim().split(/[\s,;]+/).map(Number));
        const good = rows.filter((row) => row.length === 2 && row.every(Number.isFinite));
        if (!good.length) return;
        [state.keys, state.values] = [good.map(([x]) => [x]), good.map(([, y]) => [y])];
        renew();
      });
      svg.addEventListener("dblclick", (event) => {
        const [x, y] = under(panels[0], event);
        state.keys.push([clamp(x, start.x)]);
        state.values.push([clamp(y, start.y)]);
        renew();
      });
      window.addEventListener("hashchange", () => { // somebody's address, opened where the page already is
        const other = asked();
        clearTimeout(timer);
        if (!other.keys) return;
        Object.assign(state, other);
        renew();
      });
      renew();
    }
    root.gkDrag = { state, numbers: () => numbers(state) };
    new ResizeObserver(layout).observe(root); // draws at once
  }

  window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".gk-drag").forEach(build));
})();
