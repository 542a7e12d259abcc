// Figure 5.3: what softmax makes of scores that were, or were not, divided by the root of the vector size.
"use strict";
function drawSaturation(stage, data) {
  const { el, svg, fixed } = dom;
  const sizes = data.sizes;
  let now = sizes.indexOf(64);
  const SIDES = [
    ["raw", "softmax(q·k)", "var(--second)"],
    ["scaled", "softmax(q·k ÷ √d)", "var(--accent)"],
  ];
  const facts = (names) => {
    const values = names.map(() => el("dd", {}, el("output", {})));
    const element = el(
      "dl",
      { class: "facts" },
      names.map((name, i) => [el("dt", {}, name), values[i]]),
    );
    return {
      element,
      set: (texts) =>
        texts.forEach((text, i) => {
          values[i].firstChild.textContent = text;
        }),
    };
  };
  const says = el("p", { class: "says", "aria-live": "polite" });
  const sides = SIDES.map(([side, title, colour]) => {
    const bars = data.draws[0][side].weights.map((_, i) => {
      const bar = el("b");
      const share = el("output");
      return { bar, share, element: el("div", { class: "bar" }, `key ${i + 1}`, el("i", {}, bar), share) };
    });
    const told = facts([
      "Scores, this draw",
      "Gradient, this draw",
      "Largest weight, mean of 1,000 draws",
      "Gradient, mean of 1,000 draws",
    ]);
    const element = el(
      "section",
      { style: `--fill: ${colour}`, "data-side": side },
      el("h3", {}, title),
      bars.map((bar) => bar.element),
      told.element,
    );
    return { side, bars, told, element };
  });

  // -- the chart: gradient against size, one line a side --------------------------------------------------------------

  const [HEIGHT, LEFT, RIGHT, BOTTOM] = [170, 44, 92, 28];
  const last = sizes.length - 1;
  const most = Math.max(...data.averages.map((a) => Math.max(a.raw.gradient, a.scaled.gradient))) * 1.15;
  const chart = svg("svg", {
    class: "chart",
    role: "img",
    "aria-label": "Mean gradient against vector size: it vanishes without the division and stays level with it",
  });
  // As wide as the figure is, with letters of one size, so it is drawn anew when that changes.
  function plot() {
    const x = (i) => LEFT + (i / last) * (chart.clientWidth - LEFT - RIGHT);
    const y = (g) => HEIGHT - BOTTOM - (g / most) * (HEIGHT - BOTTOM - 12);
    const text = (words, x, y, anchor, fill) =>
      svg("text", { x, y, "text-anchor": anchor, style: fill && `fill: ${fill}` }, words);
    const ends = { raw: "not divided", scaled: "÷ √d" };
    chart.replaceChildren(
      text("mean gradient", LEFT, 10),
      ...[0, 0.05, 0.1].map((g) => text(String(g), LEFT - 8, y(g) + 4, "end")),
      ...[0, 2, 4, 6, 8, 10].map((i) => text(dom.whole(sizes[i]), x(i), HEIGHT - 8, "middle")),
      svg("line", { class: "axis", x1: LEFT, x2: x(last), y1: y(0), y2: y(0) }),
      svg("line", { class: "axis", x1: x(now), x2: x(now), y1: 14, y2: y(0), "stroke-dasharray": "3 3" }),
      ...SIDES.flatMap(([side, , colour]) => {
        const heights = data.averages.map((a) => y(a[side].gradient));
        const path = heights.map((height, i) => `${i ? "L" : "M"}${x(i)} ${height}`).join("");
        return [
          svg("path", { d: path, stroke: colour }),
          svg("circle", { cx: x(now), cy: heights[now], r: 4.5, fill: colour }),
          text(ends[side], x(last) + 10, heights[last] + 4, "start", colour),
        ];
      }),
    );
  }

  function show(i) {
    for (const { side, bars, told } of sides) {
      const { scores, weights, gradients } = data.draws[i][side];
      weights.forEach((share, n) => {
        bars[n].bar.style.width = `${100 * share}%`;
        bars[n].share.textContent = `${fixed(100 * share, 1)}%`;
      });
      const mean = gradients.reduce((a, b) => a + b) / gradients.length;
      const average = data.averages[i][side];
      told.set([
        `${fixed(Math.min(...scores), 1)} to ${fixed(Math.max(...scores), 1)}`,
        fixed(mean, 4),
        `${fixed(100 * average.largest, 0)}%`,
        fixed(average.gradient, 4),
      ]);
    }
    now = i;
    plot();
    const { raw, scaled } = data.averages[i];
    says.replaceChildren(
      `Over 1,000 draws the raw scores spread by ${fixed(raw.spread, 1)}; √${dom.whole(sizes[i])} is ` +
        `${fixed(Math.sqrt(sizes[i]), 1)}. Divided, they spread by ${fixed(scaled.spread, 2)}.`,
    );
  }
  const control = dom.slider(
    "Vector size d_k",
    { low: 0, high: last, value: now, show: (i) => dom.whole(sizes[i]) },
    show,
  );
  control.element.firstChild.replaceChildren("Vector size ", el("i", {}, "d", el("sub", {}, "k")));
  stage.append(
    control.element,
    el(
      "div",
      { class: "two" },
      sides.map((side) => side.element),
    ),
    says,
    chart,
  );
  new ResizeObserver(plot).observe(chart);
  show(now);
}
