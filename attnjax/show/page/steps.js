// Figure 5.2: one head from X to the output, a step at a time, with the chosen cell's sum worked out.
"use strict";
function drawSteps(stage, data) {
  const { el, fixed, word } = dom;
  const tokens = data.tokens.map(word);
  // The library's own numbers are drawn until X is edited; JSON has no infinity, so null stands for it.
  const first = { ...data.trace, masked: data.trace.masked.map((row) => row.map((s) => (s === null ? -Infinity : s))) };
  const size = first.wq[0].length;
  const state = { step: 0, row: 2, column: 1, x: first.x.map((row) => [...row]), timer: null };
  let values = first;

  const { tables: TABLES, steps: STEPS } = listSteps(tokens, size, () => values);
  const numbers = TABLES.x.columns;

  // -- elements -------------------------------------------------------------------------------------------------------

  const fault = el("p", { class: "fault", role: "alert" });
  const count = el("span", { class: "count" });
  const formula = el("p", { class: "formula" });
  const text = el("p", { class: "text" });
  // Moves, not entries: when the board is drawn anew under a resting mouse, the keyboard's choice stays.
  const board = el("div", { class: "matrices", onpointermove: pick, onclick: pick });
  const sum = el("p", { class: "sum mono", "aria-live": "polite" });
  const play = el("button", { type: "button", class: "main", onclick: () => toggle() }, "Play");
  const reset = el("button", { type: "button", class: "quiet", onclick: () => restore() }, "Reset X");
  const dots = STEPS.map((step, i) =>
    el("button", {
      type: "button",
      title: step.formula,
      "aria-label": `Step ${i + 1}: ${step.formula}`,
      tabindex: -1,
      onclick: () => go(i),
    }),
  );
  const inputs = first.x.map((row, i) =>
    row.map((value, j) =>
      el("input", {
        value: entered(value),
        inputmode: "decimal",
        autocomplete: "off",
        "aria-label": `X, ${tokens[i].trim()}, ${numbers[j]}`,
        oninput: () => edit(),
      }),
    ),
  );
  const editor = el(
    "table",
    { class: "matrix" },
    el("caption", {}, el("b", {}, "X"), " · edit any number"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th"),
        numbers.map((n) => el("th", {}, n)),
      ),
    ),
    el(
      "tbody",
      {},
      inputs.map((row, i) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, tokens[i]),
          row.map((x) => el("td", {}, x)),
        ),
      ),
    ),
  );
  stage.setAttribute("tabindex", "0");
  stage.setAttribute("aria-label", "Steps of self-attention: left and right arrow keys step, space plays");
  stage.append(
    el(
      "div",
      { class: "told" },
      el("div", {}, editor, el("div", { class: "gap" }, reset)),
      el(
        "div",
        {},
        count,
        formula,
        text,
        el("div", { class: "dots" }, dots),
        el(
          "div",
          { class: "row" },
          el("button", { type: "button", "aria-label": "Previous step", onclick: () => go(state.step - 1) }, "←"),
          play,
          el("button", { type: "button", "aria-label": "Next step", onclick: () => go(state.step + 1) }, "→"),
        ),
      ),
    ),
    fault,
    board,
    sum,
  );

  // -- drawing --------------------------------------------------------------------------------------------------------

  function entered(value) {
    return (Number.isInteger(value * 10) ? value.toFixed(1) : String(value)).replace("-", "−");
  }
  // Weights are tinted by their size, scores not: they have no natural whole.
  function matrix(name, mark, result) {
    const { name: letter, title, rows, columns, get } = TABLES[name];
    const grid = get();
    const cell = (value, i, j) => {
      const operand =
        mark === "cell"
          ? i === state.row && j === state.column
          : mark === "row"
            ? i === state.row
            : mark === "column" && j === state.column;
      const own = result && i === state.row && j === state.column;
      return el(
        "td",
        {
          class: own ? "chosen" : operand ? "operand" : null,
          "data-value": value,
          style: name === "weights" ? `--tint: var(--accent); --weight: ${Math.round(value * 45)}` : null,
          "data-place": result ? `${i} ${j}` : null,
        },
        fixed(value),
      );
    };
    return el(
      "table",
      { class: result ? "matrix result" : "matrix", "data-table": name },
      el("caption", {}, el("b", {}, letter), title ? ` · ${title}` : ""),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th"),
          columns.map((c) => el("th", {}, c.slice(0, 6))),
        ),
      ),
      el(
        "tbody",
        {},
        grid.map((row, i) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, rows[i]),
            row.map((v, j) => cell(v, i, j)),
          ),
        ),
      ),
    );
  }
  function pick(event) {
    const cell = event.target.closest("[data-place]");
    if (cell) choose(...cell.dataset.place.split(" ").map(Number));
  }
  function choose(row, column) {
    if (row === state.row && column === state.column) return;
    Object.assign(state, { row, column });
    drawBoard();
  }
  function drawBoard() {
    const step = STEPS[state.step];
    const parts = step.parts.map((part) =>
      typeof part === "string" ? el("span", { class: "sign" }, part) : matrix(part[0], part[1]),
    );
    board.replaceChildren(...parts, matrix(step.name, null, true));
    const [name, worked] = worksOut(step);
    const value = values[step.name][state.row][state.column];
    sum.replaceChildren(name, worked ? ` = ${worked} = ` : " = ", el("b", {}, fixed(value, worked ? 3 : 2)));
  }
  // The chosen cell's name and its sum: ["Q[·cat, d₁]", "1.00 × 1.20 + ..."].
  function worksOut(step) {
    const { row: i, column: j } = state;
    const { name, rows, columns } = TABLES[step.name];
    const own = `${name}[${rows[i].trim()}, ${columns[j].trim()}]`;
    const signed = (x) => (fixed(x).startsWith("−") ? `(${fixed(x)})` : fixed(x)); // -0.001 reads 0.00
    if (!step.parts.length) return [own, ""];
    if (step.name === "scaled") return [own, `${fixed(values.scores[i][j])} ÷ ${fixed(Math.sqrt(size))}`];
    if (step.name === "masked") return [own, `${fixed(values.scaled[i][j])} + ${j <= i ? "0" : "(−∞)"}`];
    if (step.name === "weights") {
      const powers = values.masked[i].map((s) => `e^${signed(s)}`);
      return [own, `${powers[j]} ÷ (${powers.join(" + ")})`];
    }
    const [a, b] = [step.parts[0][0], step.parts[2][0]].map((part) => TABLES[part].get());
    return [own, a[i].map((x, n) => `${signed(x)} × ${signed(b[n][j])}`).join(" + ")];
  }
  function draw() {
    const step = STEPS[state.step];
    count.textContent = `Step ${state.step + 1} of ${STEPS.length}`;
    // W_Q in a formula is W with a small Q below it
    formula.replaceChildren(
      ...step.formula.split(/(_[QKV])/).map((part) => (part[0] === "_" ? el("sub", {}, part[1]) : part)),
    );
    text.textContent = step.text;
    dots.forEach((dot, i) => {
      dot.className = i < state.step ? "done" : "";
      if (i === state.step) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    drawBoard();
  }

  // -- moving and editing ---------------------------------------------------------------------------------------------

  function go(step) {
    pause();
    state.step = dom.between(step, 0, STEPS.length - 1);
    draw();
  }
  function pause() {
    clearInterval(state.timer);
    state.timer = null;
    play.textContent = "Play";
    sum.setAttribute("aria-live", "polite");
  }
  function toggle() {
    if (state.timer) return pause();
    if (state.step === STEPS.length - 1) state.step = -1;
    const advance = () => {
      state.step += 1;
      draw();
      if (state.step === STEPS.length - 1) pause();
    };
    state.timer = setInterval(advance, 2600);
    play.textContent = "Pause";
    sum.setAttribute("aria-live", "off"); // a screen reader would be interrupted at every step
    return advance();
  }
  function walk(by) {
    const { rows, columns } = TABLES[STEPS[state.step].name];
    const next = dom.between(state.row * columns.length + state.column + by, 0, rows.length * columns.length - 1);
    choose(Math.floor(next / columns.length), next % columns.length);
  }
  const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  function edit() {
    const wrong = [];
    inputs.forEach((row, i) =>
      row.forEach((input, j) => {
        const written = input.value.trim().replaceAll("−", "-");
        const value = Number(written);
        const bad = !NUMBER.test(written)
          ? "is not a number; write it like 0.3 or −1.5"
          : Math.abs(value) > 1000
            ? "is too large; the figure takes numbers from −1000 to 1000"
            : null;
        input.setAttribute("aria-invalid", bad ? "true" : "false");
        const place = `X[${tokens[i].trim()}, ${numbers[j]}]`;
        const shown = written ? `“${written}”` : "An empty field";
        if (bad) wrong.push(`${shown} ${bad}. Until then ${place} stays ${fixed(state.x[i][j])}.`);
        else state.x[i][j] = value;
      }),
    );
    fault.textContent = wrong.join("\n");
    values = trace.run(state.x, first.wq, first.wk, first.wv);
    drawBoard();
  }
  function restore() {
    inputs.forEach((row, i) =>
      row.forEach((input, j) => {
        input.value = entered(first.x[i][j]);
      }),
    );
    edit();
    values = first;
    drawBoard();
  }

  dom.keys(stage, {
    ArrowRight: () => go(state.step + 1),
    ArrowLeft: () => go(state.step - 1),
    Home: () => go(0),
    End: () => go(STEPS.length - 1),
    ArrowDown: () => walk(1),
    ArrowUp: () => walk(-1),
    " ": toggle,
  });
  draw();
}
