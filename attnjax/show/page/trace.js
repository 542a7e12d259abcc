// One attention head in twelve steps, as aj.trace names them. The page needs it because X can be edited; the tests hold
// it to aj.trace within 1e-6 on random X.
"use strict";
const trace = (() => {
  const product = (a, b) => a.map((row) => b[0].map((_, j) => row.reduce((sum, x, n) => sum + x * b[n][j], 0)));
  const transposed = (a) => a[0].map((_, j) => a.map((row) => row[j]));
  function softmax(row) {
    const most = Math.max(...row);
    const powers = row.map((s) => Math.exp(s - most));
    const total = powers.reduce((a, b) => a + b);
    return powers.map((p) => p / total);
  }
  // Causal: row i keeps columns up to i.
  function run(x, wq, wk, wv) {
    const [q, k, v] = [wq, wk, wv].map((w) => product(x, w));
    const scores = product(q, transposed(k));
    const scaled = scores.map((row) => row.map((s) => s / Math.sqrt(k[0].length)));
    const masked = scaled.map((row, i) => row.map((s, j) => (j <= i ? s : -Infinity)));
    const weights = masked.map(softmax);
    return { x, wq, wk, wv, q, k, v, scores, scaled, masked, weights, out: product(weights, v) };
  }
  return { run, transposed };
})();
