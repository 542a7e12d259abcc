// The twelve steps of figure 5.2: what each computes from which tables, and what to say about it.
"use strict";
// `values` returns the numbers of all steps, named as in aj.trace.
function listSteps(tokens, size, values) {
  const { fixed } = dom;
  const d = (j) => "d" + String.fromCharCode(0x2080 + j); // d with a small number below
  const numbers = Array.from({ length: size }, (_, j) => d(j));
  const causal = tokens.map((_, i) => tokens.map((_, j) => (j <= i ? 0 : -Infinity)));
  const table = (name, title, rows, columns, get) => ({ name, title, rows, columns, get });
  const tables = {
    x: table("X", "token vectors", tokens, numbers, () => values().x),
    wq: table("W_Q", "learned", numbers, numbers, () => values().wq),
    wk: table("W_K", "learned", numbers, numbers, () => values().wk),
    wv: table("W_V", "learned", numbers, numbers, () => values().wv),
    q: table("Q", "queries", tokens, numbers, () => values().q),
    k: table("K", "keys", tokens, numbers, () => values().k),
    v: table("V", "values", tokens, numbers, () => values().v),
    kt: table("Kᵀ", "keys, flipped", numbers, tokens, () => trace.transposed(values().k)),
    scores: table("QKᵀ", "scores", tokens, tokens, () => values().scores),
    scaled: table("S", "scaled scores", tokens, tokens, () => values().scaled),
    mask: table("M", "causal mask", tokens, tokens, () => causal),
    masked: table("S + M", "masked scores", tokens, tokens, () => values().masked),
    weights: table("A", "weights", tokens, tokens, () => values().weights),
    out: table("output", "", tokens, numbers, () => values().out),
  };
  const given = (name, formula, text) => ({ name, formula, text, parts: [] });
  const product = (name, formula, a, b, text) => ({
    name,
    formula,
    text,
    parts: [[a, "row"], "×", [b, "column"], "="],
  });
  const root = `√${size}`;
  const steps = [
    given("x", "X", `Four tokens, each already a vector of ${size} numbers (real models use thousands). Stacked: X.`),
    given("wq", "W_Q", "A learned matrix that turns a token’s vector into its query: what the token is looking for."),
    given("wk", "W_K", "A second one, for the keys: what a token offers to whoever is looking."),
    given("wv", "W_V", "A third one, for the values: what a token hands over when it is chosen."),
    product(
      "q",
      "Q = X W_Q",
      "x",
      "wq",
      "Each row is a token’s query: a row of X times a column of W_Q, added up, for each number.",
    ),
    product("k", "K = X W_K", "x", "wk", "The same for the keys. Every token makes its own from its own vector."),
    product(
      "v",
      "V = X W_V",
      "x",
      "wv",
      "And for the values(). Queries and keys will decide who is heard; the values are what is said.",
    ),
    product(
      "scores",
      "Q Kᵀ",
      "q",
      "kt",
      "Row i, column j: how well token i’s query fits token j’s key. All pairs at once, in one product.",
    ),
    {
      name: "scaled",
      formula: `S = Q Kᵀ ÷ ${root}`,
      parts: [["scores", "cell"], `÷ ${root} =`],
      text: `Divided by ${root} = ${fixed(Math.sqrt(size), 1)}: scores keep their size however wide the head is.`,
    },
    {
      name: "masked",
      formula: "S + M",
      parts: [["scaled", "cell"], "+", ["mask", "cell"], "="],
      text: "The causal mask: a token may look at itself and at earlier ones. The future becomes −∞.",
    },
    {
      name: "weights",
      formula: "A = softmax(S + M)",
      parts: [["masked", "row"], "→"],
      text: "Softmax turns each row into shares that add up to 1. e to the −∞ is 0: the future gets nothing.",
    },
    product(
      "out",
      "A V",
      "weights",
      "v",
      "Each token’s new vector: a blend of the values it looked at. Same shape as X, ready for the next layer.",
    ),
  ];
  return { tables, steps };
}
