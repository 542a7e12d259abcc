// Figure 5.3: what softmax makes of scores that were, or were not, divided by the root of the vector size.
"use strict";
function drawSaturation(stage, data) {
  const { el, svg, fixed } = dom;
  const sizes = data.sizes;
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

  const [W, H, LEFT, BOTTOM] = [680, 170, 44, 28];
  const most = Math.max(...data.averages.map((a) => Math.max(a.raw.gradient, a.scaled.gradient))) * 1.15;
  const x = (i) => LEFT + (i / (sizes.length - 1)) * (W - LEFT - 96);
  const y = (g) => H - BOTTOM - (g / most) * (H - BOTTOM - 12);
  const marker = svg("line", { class: "axis", y1: 8, y2: H - BOTTOM, "stroke-dasharray": "3 3" });
  const points = SIDES.map(([, , colour]) => svg("circle", { r: 4.5, fill: colour }));
  const line = (side) => data.averages.map((a, i) => `${i ? "L" : "M"}${x(i)} ${y(a[side].gradient)}`).join("");
  const last = sizes.length - 1;
  const chart = svg(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${W} ${H}`,
      role: "img",
      "aria-label": "Mean gradient against vector size: it vanishes without the division and stays level with it",
    },
    svg("line", { class: "axis", x1: LEFT, x2: x(last), y1: y(0), y2: y(0) }),
    [0, 0.05, 0.1].map((g) => svg("text", { x: LEFT - 8, y: y(g) + 4, "text-anchor": "end" }, g ? String(g) : "0")),
    sizes.map((size, i) =>
      [1, 4, 16, 64, 256, 1024].includes(size)
        ? svg("text", { x: x(i), y: H - 8, "text-anchor": "middle" }, dom.whole(size))
        : null,
    ),
    SIDES.map(([side, , colour]) => svg("path", { d: line(side), stroke: colour })),
    SIDES.map(([side, , colour]) =>
      svg(
        "text",
        { x: x(last) + 10, y: y(data.averages[last][side].gradient) + 4, style: `fill: ${colour}` },
        side === "raw" ? "not divided" : "÷ √d",
      ),
    ),
    svg("text", { x: LEFT, y: 10 }, "mean gradient"),
    marker,
    points,
  );

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
    marker.setAttribute("x1", x(i));
    marker.setAttribute("x2", x(i));
    points.forEach((point, n) => {
      point.setAttribute("cx", x(i));
      point.setAttribute("cy", y(data.averages[i][SIDES[n][0]].gradient));
    });
    const { raw, scaled } = data.averages[i];
    says.replaceChildren(
      `Over 1,000 draws the raw scores spread by ${fixed(raw.spread, 1)}; √${dom.whole(sizes[i])} is ` +
        `${fixed(Math.sqrt(sizes[i]), 1)}. Divided, they spread by ${fixed(scaled.spread, 2)}.`,
    );
  }
  const start = sizes.indexOf(64);
  const control = dom.slider(
    "Vector size d_k",
    { low: 0, high: last, value: start, show: (i) => dom.whole(sizes[i]) },
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
  show(start);
}
