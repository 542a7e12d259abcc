// Draws every figure from the embedded numbers, and switches between light and dark.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = () =>
    (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const tell = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
  drawLooks(dom.stage("looks"), data.heads);
  drawSteps(dom.stage("steps"), data.steps);
  drawSaturation(dom.stage("saturation"), data.saturation);
  drawFour(dom.stage("four"), data.heads);
  drawComputed(dom.stage("computed"), data.computed);
})();
