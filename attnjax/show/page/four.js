// Figure 5.4: four heads on one sentence as heat maps; one chosen pair, answered by all four.
"use strict";
function drawFour(stage, data) {
  const { el, fixed, word } = dom;
  const { start } = data.sentences[0];
  const first = data.weights[0][0][start]; // the pair shown first: where the first head looks most
  const state = { sentence: 0, row: start, column: first.indexOf(Math.max(...first)) };
  const sentences = dom.choices(
    "Sentence",
    data.sentences.map((s) => s.label),
    0,
    (i) => {
      state.sentence = i;
      build();
    },
  );
  const board = el("div", { class: "heads" });
  stage.append(
    ...(data.sentences.length > 1 ? [sentences.element] : []),
    board,
    el("p", { class: "note" }, "The heads are those of figure 5.1."),
  );
  let maps = [];

  function build() {
    const { tokens } = data.sentences[state.sentence];
    state.row = Math.min(state.row, tokens.length - 1);
    state.column = Math.min(state.column, tokens.length - 1);
    maps = data.heads.slice(0, 4).map((head, h) => map(head, data.weights[state.sentence][h], tokens));
    board.replaceChildren(...maps.map((m) => m.element));
    mark();
  }
  function map(head, weights, tokens) {
    const labels = tokens.map((token) => el("span", {}, word(token)));
    const cells = weights.map((row, q) =>
      row.map((weight, k) =>
        el("i", {
          class: k > q ? "future" : null,
          style: `--weight: ${k > q ? 0 : weight}`,
          "data-q": q,
          "data-k": k,
          "data-weight": weight,
        }),
      ),
    );
    const grid = el(
      "div",
      {
        class: "heat",
        tabindex: 0,
        role: "img",
        style: `grid-template-columns: minmax(0, 74px) repeat(${tokens.length}, minmax(0, 1fr))`,
        "aria-label": `${head.name}: weights of ${tokens.length} words, arrow keys choose a pair`,
        onpointerover: pick,
        onclick: pick,
      },
      tokens.map((_, q) => [labels[q], ...cells[q]]),
    );
    dom.keys(grid, {
      ArrowUp: () => move(-1, 0),
      ArrowDown: () => move(1, 0),
      ArrowLeft: () => move(0, -1),
      ArrowRight: () => move(0, 1),
    });
    const answer = el("p", { class: "answer", "aria-live": "polite" });
    const bars = head.scores.map(({ name, value, most }) => {
      const bar = el("b");
      bar.style.width = `${100 * dom.between(value / most, 0, 1)}%`;
      return [el("span", {}, name), el("i", {}, bar), el("output", {}, fixed(value))];
    });
    const element = el(
      "section",
      { class: "head" },
      el("h3", {}, head.name, head.where ? el("span", { class: "where" }, ` · ${head.where}`) : ""),
      el("p", { class: "about" }, head.about),
      grid,
      answer,
      el("div", { class: "scores" }, bars),
    );
    return { element, weights, labels, cells, answer };
  }
  function pick(event) {
    const cell = event.target.closest("i[data-q]");
    if (!cell) return;
    Object.assign(state, { row: Number(cell.dataset.q), column: Number(cell.dataset.k) });
    mark();
  }
  function move(down, right) {
    const { length } = data.sentences[state.sentence].tokens;
    state.row = dom.between(state.row + down, 0, length - 1);
    state.column = dom.between(state.column + right, 0, length - 1);
    mark();
  }
  function mark() {
    const { tokens } = data.sentences[state.sentence];
    const [query, key] = [state.row, state.column].map((i) => tokens[i].trim());
    for (const { weights, labels, cells, answer, element } of maps) {
      for (const marked of element.querySelectorAll(".at")) marked.classList.remove("at");
      labels[state.row].classList.add("at");
      cells[state.row][state.column].classList.add("at");
      const weight = weights[state.row][state.column];
      answer.replaceChildren(
        "query “",
        el("b", {}, query),
        "” → key “",
        el("b", {}, key),
        "”: ",
        state.column > state.row ? "hidden, it comes later" : el("b", { class: "mono" }, fixed(weight, 3)),
      );
    }
  }
  build();
}
