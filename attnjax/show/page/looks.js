// Figure 5.1: one head on the sentences of its model, side by side; the chosen word's lines lead to what it looks at.
"use strict";
function drawLooks(stage, data) {
  const { el, svg, word, percent } = dom;
  const ROW = 27; // the height of a word in style.css
  const LEAST = 0.005; // shares below this draw no line
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const state = { head: 0, words: data.sentences.map((s) => s.start) };

  const heads = dom.choices(
    "Head",
    data.heads.map((head) => head.name),
    0,
    (i) => {
      state.head = i;
      draw();
    },
  );
  const about = el("p", { class: "note" });
  const panels = data.sentences.map((sentence, s) => panel(sentence, s));
  stage.append(
    heads.element,
    about,
    el(
      "div",
      { class: "pair" },
      panels.map((p) => p.element),
    ),
    el("p", { class: "note" }, dom.prose(data.note)),
  );

  function panel(sentence, s) {
    const name = (prefix, i) => `${prefix}-${s}-${i}`;
    const from = sentence.tokens.map((token, i) =>
      el(
        "li",
        {
          role: "option",
          id: name("word", i),
          onpointerenter: (event) => {
            if (event.pointerType === "mouse") choose(s, i);
          },
          onclick: () => choose(s, i),
        },
        word(token),
      ),
    );
    const shares = sentence.tokens.map(() => el("output"));
    const to = sentence.tokens.map((token, i) => el("li", {}, el("span", {}, word(token)), shares[i]));
    const lines = svg("svg", { "aria-hidden": "true" });
    const list = el(
      "ul",
      { class: "from", role: "listbox", tabindex: 0, "aria-label": `Words of “${sentence.label}”` },
      from,
    );
    const says = el("p", { class: "says", "aria-live": "polite" });
    dom.keys(list, {
      ArrowDown: () => choose(s, state.words[s] + 1),
      ArrowUp: () => choose(s, state.words[s] - 1),
      Home: () => choose(s, 0),
      End: () => choose(s, sentence.tokens.length - 1),
    });
    const element = el(
      "section",
      { class: "panel" },
      el("h3", {}, sentence.label),
      el("div", { class: "words" }, list, lines, el("ul", { class: "to" }, to)),
      says,
    );
    new ResizeObserver(() => draw()).observe(element);
    return { element, from, to, shares, lines, list, says, name };
  }
  function choose(s, word) {
    state.words[s] = dom.between(word, 0, data.sentences[s].tokens.length - 1);
    draw();
  }
  // An S-curve between a word and one it looks at; dots run along it from there, as information does.
  function curve(lines, width, row, column, weight) {
    const [y, z] = [row, column].map((i) => ROW * i + ROW / 2);
    const path = `M${width} ${z}C${width / 2} ${z} ${width / 2} ${y} 0 ${y}`;
    lines.append(svg("path", { d: path, "stroke-width": 0.75 + 7 * weight, opacity: 0.25 + 0.6 * weight }));
    if (weight < 0.08 || still) return;
    const dot = svg("circle", { r: 2 + 2 * weight });
    dot.append(
      svg("animateMotion", { path, dur: "2.4s", begin: `-${(column * 0.37) % 2.4}s`, repeatCount: "indefinite" }),
    );
    lines.append(dot);
  }
  function draw() {
    const head = data.heads[state.head];
    about.replaceChildren(el("b", {}, head.where ? `Head ${head.where}. ` : ""), head.about);
    panels.forEach(({ from, to, shares, lines, list, says, name }, s) => {
      const { tokens } = data.sentences[s];
      const row = state.words[s];
      const weights = data.weights[s][state.head][row];
      const width = lines.clientWidth;
      list.setAttribute("aria-activedescendant", name("word", row));
      lines.replaceChildren();
      tokens.forEach((_, i) => {
        from[i].setAttribute("aria-selected", i === row ? "true" : "false");
        const future = i > row;
        to[i].className = future ? "future" : weights[i] >= 0.2 ? "strong" : "";
        to[i].style.setProperty("--weight", future ? 0 : weights[i]);
        shares[i].textContent = future ? "" : percent(weights[i]);
        if (!future && weights[i] > LEAST) curve(lines, width, row, i, weights[i]);
      });
      const order = tokens
        .map((_, i) => i)
        .filter((i) => weights[i] >= 0.05)
        .sort((a, b) => weights[b] - weights[a]);
      says.textContent =
        `“${tokens[row].trim()}” looks at ` +
        order
          .slice(0, 3)
          .map((i) => `“${tokens[i].trim()}” ${percent(weights[i])}`)
          .join(", ") +
        ".";
    });
  }
  draw();
}
