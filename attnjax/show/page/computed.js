// Figure 5.5: which scores a pattern computes, how many at this size and at a long one, and the tiles around them.
"use strict";
function drawComputed(stage, data) {
  const { el, whole, short } = dom;
  const MOST_SHOWN = 128; // tokens a side in the picture
  const state = { named: data.start, T: data.length, window: data.window, tile: 4, tiles: false, row: null };
  const fill = (text, w) => text.replaceAll("{w}", w);
  const own = data.patterns.length; // the last choice: typed by the reader

  // -- controls -------------------------------------------------------------------------------------------------------

  const fault = el("p", { class: "fault", role: "alert" });
  const typed = el("input", {
    class: "field mono",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    "aria-label": "Pattern",
    oninput: () => {
      state.named = own;
      named.select(own);
      draw();
    },
  });
  const named = dom.choices("Pattern", [...data.patterns.map((p) => p.name), "Your own"], state.named, (i) => {
    state.named = i;
    if (i === own) typed.select();
    draw();
  });
  const length = dom.slider("Tokens", { low: 1, high: MOST_SHOWN, value: state.T }, (T) => {
    state.T = T;
    draw();
  });
  const width = dom.slider("Window w", { low: 1, high: 64, value: state.window }, (w) => {
    state.window = w;
    draw();
  });
  const side = dom.slider("Tile side", { low: 1, high: 32, value: state.tile }, (n) => {
    state.tile = n;
    draw();
  });
  const views = dom.choices("View", ["Scores", "Tiles"], 0, (i) => {
    state.tiles = i === 1;
    draw();
  });
  const number = (value, label) =>
    el("input", {
      class: "field mono",
      value: whole(value),
      inputmode: "numeric",
      autocomplete: "off",
      "aria-label": label,
      oninput: () => draw(),
    });
  const long = number(data.long, "Tokens of the long text");
  const longWindow = number(data.longWindow, "Window of the long text");
  const windowed = el("span", { class: "inline" }, "with w =", longWindow);
  const here = el("p", { class: "big", id: "count-here" });
  const there = el("p", { class: "big", id: "count-long" });
  const note = el("p", { class: "note" });
  const says = el("p", { class: "says", "aria-live": "polite" });
  const canvas = el("canvas", {
    tabindex: 0,
    role: "img",
    onpointermove: over,
    onpointerdown: over,
    onpointerleave: (event) => event.pointerType === "mouse" && look(null), // a lifted finger leaves too
  });
  const legend = el("p", { class: "note" });
  stage.append(
    named.element,
    el("div", { class: "gap" }, typed),
    fault,
    note,
    el(
      "div",
      { class: "computed" },
      el("div", {}, canvas, says, legend),
      el(
        "div",
        { class: "controls" },
        views.element,
        length.element,
        width.element,
        side.element,
        here,
        el("p", { class: "inline" }, "Long text:", long, "tokens", windowed),
        there,
      ),
    ),
  );

  // -- reading what was entered ---------------------------------------------------------------------------------------

  function wholeNumber(input, name, most) {
    const text = input.value.replaceAll(",", "").trim();
    const bad = !/^\d+$/.test(text)
      ? `${name} is “${input.value}”; it must be a whole number`
      : Number(text) < 1
        ? `${name} is ${text}; it must be at least 1`
        : Number(text) > most
          ? `${name} is ${text}; the page counts up to ${whole(most)}`
          : null;
    input.setAttribute("aria-invalid", bad ? "true" : "false");
    if (bad) throw new Error(bad);
    return Number(text);
  }
  // The pattern at this size, its text at the long size, and whether the window slider decides it.
  function chosen() {
    if (state.named === own) return { text: typed.value, far: typed.value, sized: false };
    const { text } = data.patterns[state.named];
    const sized = text.includes("{w}");
    const at = (w) => fill(text, w);
    return {
      text: at(state.window),
      far: () => at(wholeNumber(longWindow, "The window of the long text", patterns.LARGEST)),
      sized,
    };
  }

  // -- drawing --------------------------------------------------------------------------------------------------------

  let grid = [];
  let squares = [];
  let last = null; // {expr, far} of the last pattern that could be read: what is drawn and counted
  function draw() {
    const { text, far, sized } = chosen();
    let read = true;
    if (state.named !== own) typed.value = text;
    for (const [control, on] of [
      [width.element, sized],
      [windowed, sized],
      [side.element, state.tiles],
    ])
      control.style.display = on ? "" : "none";
    try {
      last = { expr: language.parse(text), far };
      typed.setAttribute("aria-invalid", "false");
      fault.textContent = "";
    } catch (error) {
      if (!(error instanceof language.PatternError)) throw error;
      typed.setAttribute("aria-invalid", "true");
      fault.textContent = `This does not read as a pattern: ${error.what} (at character ${error.place + 1}).`;
      read = false;
    }
    const { expr } = last;
    grid = patterns.shares(expr, state.T);
    squares = state.tiles ? patterns.tiles(grid, state.tile) : [];
    note.textContent = !read
      ? `Drawn and counted is the last pattern that could be read: ${patterns.text(expr)}.`
      : state.named === own
        ? `Read as ${patterns.text(expr)}. Names: full causal window band sink strided chunked prefix, ` +
          "joined by & | ~ and parentheses."
        : data.patterns[state.named].about;
    canvas.setAttribute("aria-label", `${patterns.text(expr)} over ${state.T} tokens; up and down keys choose a row`);
    counts(expr, last.far);
    look(state.row !== null && state.row < state.T ? state.row : null);
  }
  function share(part, all) {
    const percent = all ? Number((part * 10000n) / all) / 100 : 0;
    return `${percent < 10 ? dom.fixed(percent, 1) : Math.round(percent)}%`;
  }
  function counts(expr, far) {
    const heads = BigInt(expr.heads ? expr.heads.length : 1);
    const causal = (T) => (heads * BigInt(T) * (BigInt(T) + 1n)) / 2n;
    const big = (element, ...parts) => element.replaceChildren(...parts.filter(Boolean));
    const guarded = (element, work) => {
      try {
        work();
      } catch (error) {
        big(element, el("span", { class: "fault" }, `${error.message}.`));
      }
    };
    guarded(here, () => {
      const needed = patterns.count(expr, state.T);
      const all = causal(state.T);
      // each head has tiles of its own; the picture shows what any of them computes
      const own = state.tiles ? (expr.heads || [expr]).map((head) => patterns.shares(head, state.T)) : [];
      const tiles = own.flatMap((seen) => patterns.tiles(seen, state.tile)).filter((tile) => tile.state > 0);
      const computed = tiles.reduce((sum, t) => sum + (t.q1 - t.q0) * (t.k1 - t.k0), 0);
      big(
        here,
        el("strong", { "data-count": needed }, whole(needed)),
        el("span", {}, `scores of ${whole(all)} with full causal attention (${share(needed, all)})`),
        state.tiles
          ? el(
              "span",
              {},
              `${whole(computed)} computed in ${tiles.length} of ${own.length * squares.length} tiles, ` +
                "the waste included",
            )
          : null,
      );
    });
    guarded(there, () => {
      const T = wholeNumber(long, "The long text", patterns.LONGEST);
      const text = typeof far === "function" ? far() : far;
      const needed = patterns.count(language.parse(text), T);
      big(
        there,
        el("strong", { "data-count": needed }, short(needed)),
        el("span", {}, `of ${short(causal(T))} (${share(needed, causal(T))}) at ${whole(T)} tokens`),
        el("code", {}, text),
      );
    });
  }
  function over(event) {
    const box = canvas.getBoundingClientRect();
    look(dom.between(Math.floor(((event.clientY - box.top) / box.height) * state.T), 0, state.T - 1));
  }
  // "0, 4–7": the keys in runs
  function runs(keys) {
    const found = [];
    for (const k of keys) {
      if (found.length && found.at(-1)[1] === k - 1) found.at(-1)[1] = k;
      else found.push([k, k]);
    }
    const texts = found.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
    return texts.length > 12 ? [...texts.slice(0, 12), "…"].join(", ") : texts.join(", ");
  }
  function look(row) {
    state.row = row;
    paint();
    if (row === null) {
      says.textContent = "Hover a row to see what that token can attend to.";
      return;
    }
    const seen = grid[row].map((share, k) => (share > 0 ? k : -1)).filter((k) => k >= 0);
    says.textContent = seen.length
      ? `Token ${row} sees ${seen.length} of ${state.T}: ${runs(seen)}.`
      : `Token ${row} sees nothing.`;
  }
  function paint() {
    const side = Math.round(canvas.clientWidth * (window.devicePixelRatio || 1));
    if (!side) return;
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, side, side);
    const at = (i) => Math.round((i * side) / state.T);
    const gap = side / state.T > 8 ? Math.max(1, Math.round(side / state.T / 16)) : 0;
    const box = (q0, q1, k0, k1) => pen.fillRect(at(k0), at(q0), at(k1) - at(k0) - gap, at(q1) - at(q0) - gap);
    if (state.row !== null) {
      pen.fillStyle = colour("--line");
      pen.fillRect(0, at(state.row), side, at(state.row + 1) - at(state.row));
    }
    const paintTiles = (wanted, name, alpha) => {
      pen.fillStyle = colour(name);
      pen.globalAlpha = alpha;
      for (const tile of squares) if (tile.state === wanted) box(tile.q0, tile.q1, tile.k0, tile.k1);
    };
    paintTiles(1, "--second", 0.35);
    grid.forEach((line, q) =>
      line.forEach((share, k) => {
        if (!share) return;
        pen.fillStyle = colour(q === state.row && !state.tiles ? "--second" : "--accent");
        pen.globalAlpha = 0.3 + 0.7 * share;
        box(q, q + 1, k, k + 1);
      }),
    );
    paintTiles(2, "--third", 1);
    pen.globalAlpha = 1;
    if (state.row !== null && state.tiles) {
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = Math.max(2, side / 300);
      pen.strokeRect(1, at(state.row), side - 2, at(state.row + 1) - at(state.row) - gap);
    }
    const key = (colour, words) =>
      el("span", { class: "item" }, el("span", { class: "key", style: `background: ${colour}` }), words);
    const waste = "color-mix(in srgb, var(--second) 35%, var(--wash))";
    const tileKeys = [
      key("var(--third)", "full tile, no mask"),
      key("var(--accent)", "needed"),
      key(waste, "computed, then masked"),
    ];
    const keys = state.tiles ? tileKeys : [key("var(--accent)", "computed")];
    legend.replaceChildren(...keys, key("var(--wash)", state.tiles ? "skipped" : "not computed"));
  }
  dom.keys(canvas, {
    ArrowDown: () => look(dom.between((state.row ?? -1) + 1, 0, state.T - 1)),
    ArrowUp: () => look(dom.between((state.row ?? state.T) - 1, 0, state.T - 1)),
    Home: () => look(0),
    End: () => look(state.T - 1),
    Escape: () => look(null),
  });
  new ResizeObserver(paint).observe(canvas);
  document.addEventListener("themechange", paint);
  draw();
}
