// Elements, numbers and controls that all figures share. Text always enters the page as text, never as markup.
"use strict";
const dom = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
    return element;
  }
  const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // -- numbers and words ----------------------------------------------------------------------------------------------

  const fixed = (x, digits = 2) => {
    if (x === -Infinity) return "−∞";
    const text = Math.abs(x).toFixed(digits);
    return x < 0 && Number(text) !== 0 ? "−" + text : text;
  };
  const percent = (share) => (share > 0 && share < 0.005 ? "<1%" : Math.round(100 * share) + "%");
  const whole = (n) => n.toLocaleString("en-US");
  // 528.6M: four figures of a BigInt, in thousands, millions, billions
  function short(n) {
    for (const [unit, size] of [
      ["T", 10n ** 12n],
      ["B", 10n ** 9n],
      ["M", 10n ** 6n],
    ]) {
      if (n >= size) return (Number((n * 1000n) / size) / 1000).toFixed(1) + unit;
    }
    return whole(n);
  }
  // Words between backticks are code.
  const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
  // The space before a word is shown as a dot, as it is part of the token.
  const word = (token) => token.replace(/^ /, "·").replace(/\n/g, "⏎");

  // -- controls -------------------------------------------------------------------------------------------------------

  let groups = 0;
  // A row of options of which one is chosen: radio buttons underneath, so keyboards and screen readers know it.
  function choices(label, names, chosen, pick) {
    const group = `group-${groups++}`;
    const options = names.map((name, i) => {
      const input = el("input", { type: "radio", name: group, checked: i === chosen, onchange: () => pick(i) });
      return el("label", {}, input, el("span", {}, name));
    });
    const element = el("fieldset", { class: "choices" }, el("legend", { class: "hidden" }, label), options);
    const select = (i) =>
      options.forEach((option, n) => {
        option.firstChild.checked = n === i;
      });
    return { element, select };
  }
  // A slider with its name and value beside it; `show` turns the number into words.
  function slider(label, { low, high, value, show = String }, change) {
    const output = el("output", {}, show(value));
    const input = el("input", { type: "range", min: low, max: high, step: 1, value, "aria-label": label });
    const read = () => {
      output.textContent = show(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.addEventListener("input", () => {
      read();
      change(Number(input.value));
    });
    const set = (number, most = input.max) => {
      input.max = most;
      input.value = number;
      read();
    };
    read();
    return { element: el("label", { class: "slider" }, el("span", {}, label), input, output), set };
  }
  // Arrow keys and their like, unless somebody is typing or moving a slider.
  function keys(element, actions) {
    element.addEventListener("keydown", (event) => {
      const busy =
        event.target.closest("input, textarea, select") || (event.key === " " && event.target.closest("button"));
      const action = actions[event.key];
      if (busy || !action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
  }
  const between = (x, low, high) => Math.min(high, Math.max(low, x));
  const stage = (id) => document.querySelector(`#${id} .stage`);

  return { between, choices, el, fixed, keys, percent, prose, short, slider, stage, svg, whole, word };
})();
