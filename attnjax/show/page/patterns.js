// The pattern language, its rules and exact counts, restated in the browser so that a typed pattern answers at once.
// This file is the one place outside attnjax/patterns/ that derives them; tests/show/test_page_patterns.py compares it
// with the library on random patterns: text, visible pairs, counts, tiles and the words of every error.
"use strict";
const patterns = (() => {
  const LARGEST = 2 ** 31 - 1; // positions are int32 on devices
  const LONGEST = 2 ** 27; // tokens that a count is asked for; its square needs BigInt
  const MOST_ATOMS = 10; // strides and chunk sizes in one cell; a count takes 2 ** atoms terms
  const MOST_STEPS = 2e7; // of a count: about a second
  const [MOST_RULES, DEEPEST, MOST_REGIONS] = [128, 100, 2 ** 16]; // of one pattern, as in limits.py
  const ORDER = ["band", "sink", "prefix", "strided", "chunked"]; // their places in the normal form's text

  // -- rules: {kind, args}; {not: rule}; {op, terms} ------------------------------------------------------------------

  const rule = (kind, ...args) => ({ kind, args });
  const FULL = rule("band", null, null); // null is an unbounded side
  const NOTHING = { not: FULL };
  const RULES = {
    // whether query q may look at key k
    band: (q, k, [left, right]) => (left === null || q - k <= left) && (right === null || k - q <= right),
    sink: (q, k, [n]) => k < n && k <= q,
    prefix: (q, k, [n]) => k <= q || (q < n && k < n),
    strided: (q, k, [stride]) => k <= q && (q - k) % stride === 0,
    chunked: (q, k, [size]) => k <= q && Math.floor(q / size) === Math.floor(k / size),
  };

  function visible(expr, q, k) {
    if (expr.not) return !visible(expr.not, q, k);
    if (expr.kind) return RULES[expr.kind](q, k, expr.args);
    return expr.terms[expr.op === "&" ? "every" : "some"]((term) => visible(term, q, k));
  }

  function text(expr) {
    if (expr.heads) return `perhead(${expr.heads.map(text).join(", ")})`;
    if (expr.not) return "~" + text(expr.not);
    if (expr.op) return expr.terms.map((t) => (t.op ? `(${text(t)})` : text(t))).join(` ${expr.op} `);
    const [left, right] = expr.args;
    if (expr.kind === "band" && right === null && left === null) return "full()";
    if (expr.kind === "band" && right === 0) return left === null ? "causal()" : `window(${left + 1})`;
    return `${expr.kind}(${expr.args.map((a) => (a === null ? "none" : a)).join(", ")})`;
  }

  // -- normal form: flattened, merged, absorbed, sorted ---------------------------------------------------------------

  function key(expr) {
    if (expr.kind) return [0, [ORDER.indexOf(expr.kind), ...expr.args.map((a) => (a === null ? Infinity : a))]];
    if (expr.not) return [1, key(expr.not)[1]];
    return [2, expr.op, expr.terms.length, expr.terms.map(key)];
  }
  function compare(a, b) {
    if (!Array.isArray(a)) return a < b ? -1 : a > b ? 1 : 0;
    for (let i = 0; i < Math.min(a.length, b.length); i++) {
      const order = compare(a[i], b[i]);
      if (order) return order;
    }
    return a.length - b.length;
  }
  const sorted = (terms) => [...terms].sort((a, b) => compare(key(a), key(b)));
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  const lcm = (a, b) => (a / gcd(a, b)) * b;

  function join(a, b) {
    // one rule for a | b, or null
    const [x, y] = [a.args[0], b.args[0]];
    if (a.kind === "band") return rule("band", ...a.args.map((side, i) => widest(side, b.args[i])));
    if (a.kind === "sink" || a.kind === "prefix") return rule(a.kind, Math.max(x, y));
    const [small, large] = [Math.min(x, y), Math.max(x, y)];
    return large % small ? null : rule(a.kind, a.kind === "strided" ? small : large);
  }
  function meet(a, b) {
    // one rule for a & b, or null
    const [x, y] = [a.args[0], b.args[0]];
    if (a.kind === "band") return rule("band", ...a.args.map((side, i) => narrowest(side, b.args[i])));
    if (a.kind === "sink" || a.kind === "prefix") return rule(a.kind, Math.min(x, y));
    if (a.kind === "strided") return lcm(x, y) <= LARGEST ? rule("strided", lcm(x, y)) : null;
    return Math.max(x, y) % Math.min(x, y) ? null : rule("chunked", Math.min(x, y));
  }
  const widest = (a, b) => (a === null || b === null ? null : Math.max(a, b));
  const narrowest = (a, b) => (a === null ? b : b === null ? a : Math.min(a, b));

  function mergeTwo(op, a, b) {
    if (a.not && b.not) {
      const both = mergeTwo(op === "&" ? "|" : "&", a.not, b.not);
      return both && { not: both };
    }
    return a.kind && a.kind === b.kind ? (op === "&" ? meet(a, b) : join(a, b)) : null;
  }
  function mergeWith(op, term, done) {
    for (const other of done) {
      const both = mergeTwo(op, term, other);
      if (both) return [other, both];
    }
    return null;
  }
  const named = (terms) => new Map(terms.map((term) => [text(term), term]));
  // Inside a group no two merge any more, so only the other groups' terms are tried with the largest one's.
  function merged(op, groups) {
    const ranked = groups.map((group) => [-group.length, group.map(key), group]).sort(compare);
    const [largest, ...others] = ranked.map(([, , group]) => group);
    const done = named(largest);
    for (let term of sorted(named(others.flat()).values())) {
      let found;
      while ((found = mergeWith(op, term, done.values()))) {
        done.delete(text(found[0]));
        term = found[1];
      }
      done.set(text(term), term);
    }
    return done;
  }
  function combine(op, exprs) {
    const [neutral, ruling] = (op === "&" ? [FULL, NOTHING] : [NOTHING, FULL]).map(text);
    const found = merged(op, exprs.map((e) => (e.op === op ? e.terms : [e])));
    const groups = new Map([...found].filter(([, t]) => t.op).map(([name, t]) => [name, t.terms.map(text)]));
    const inside = (a, b) => a.length < b.length && a.every((x) => b.includes(x));
    for (const [name, parts] of groups) {
      const larger = [...groups.values()].some((other) => inside(other, parts));
      if (larger || parts.some((x) => found.has(x))) found.delete(name); // a | (a & b) is a
    }
    found.delete(neutral);
    const terms = [...found.values()];
    if (found.has(ruling) || terms.some((t) => t.kind && found.has("~" + text(t)))) return op === "&" ? NOTHING : FULL;
    if (terms.length < 2) return terms[0] || (op === "&" ? FULL : NOTHING);
    return { op, terms: sorted(terms) };
  }
  function negate(expr) {
    if (expr.not) return expr.not;
    return expr.kind ? { not: expr } : combine(expr.op === "&" ? "|" : "&", expr.terms.map(negate));
  }

  // -- exact counts in closed form ------------------------------------------------------------------------------------

  function leaves(expr) {
    return expr.terms ? expr.terms.flatMap(leaves) : [expr.not || expr];
  }
  // Thresholds of d = q - k, k and q cut the plane into cells; in a cell a rule is constant but for strides and chunks.
  function cuts(leaf) {
    const [n, right] = leaf.args;
    if (leaf.kind === "band")
      return { d: [right === null ? [] : -right, n === null ? [] : n + 1].flat(), k: [], q: [] };
    if (leaf.kind === "strided") return { d: [0], k: [], q: [] };
    if (leaf.kind === "chunked") return { d: [0, n], k: [], q: [] };
    return { d: [0], k: [n], q: leaf.kind === "prefix" ? [0, n] : [] };
  }
  // What is left of a rule in the cell with this corner: true, false, or a rule over strides and chunks.
  function left(expr, q, k, d) {
    const [n, right] = expr.args || [];
    if (expr.not) {
      const rest = left(expr.not, q, k, d);
      return typeof rest === "boolean" ? !rest : { not: rest };
    }
    if (expr.op) {
      const ruling = expr.op === "|";
      const rest = [];
      for (const term of expr.terms) {
        const one = left(term, q, k, d);
        if (one === ruling) return ruling;
        if (one !== !ruling) rest.push(one);
      }
      return rest.length ? { op: expr.op, terms: rest } : !ruling;
    }
    if (expr.kind === "band") return (n === null || d <= n) && (right === null || d >= -right);
    if (expr.kind === "sink") return d >= 0 && k < n;
    if (expr.kind === "prefix") return d >= 0 || (q < n && k < n);
    return d >= 0 && (expr.kind === "strided" || d < n) && expr;
  }
  function holds(rule, held) {
    if (rule.not) return !held(rule.not);
    return rule.op ? rule.terms[rule.op === "&" ? "every" : "some"]((term) => holds(term, held)) : held(rule);
  }

  // What is wrong with a rule that is too large, or null: it bounds the work of counting it.
  function tooLarge(expr) {
    if (!expr.op) return null;
    const found = leaves(expr);
    const depth = (e) => (e.op ? 1 + Math.max(...e.terms.map(depth)) : 0);
    const wayOut = "write it as one function, aj.Where(fn), or pass an array as mask=";
    if (found.length > MOST_RULES)
      return `the pattern would hold ${found.length} rules; it may hold at most ${MOST_RULES}: ${wayOut}`;
    if (depth(expr) > DEEPEST)
      return `the pattern would nest & and | ${depth(expr)} deep; it may nest them ${DEEPEST} deep: ${wayOut}`;
    const [q, k, d] = ["q", "k", "d"].map((axis) => new Set(found.flatMap((leaf) => cuts(leaf)[axis])).size + 1);
    const [regions, most] = [q * k * d, MOST_REGIONS].map((n) => n.toLocaleString("en-US"));
    if (q * k * d <= MOST_REGIONS) return null;
    return (
      `the pattern's numbers would cut queries into ${q} ranges, keys into ${k} and distances into ${d}, so ` +
      `${regions} regions; it may have at most ${most}: ${wayOut}`
    );
  }

  // Pairs of [q0, q1) x [k0, k1) with d0 <= q - k < d1 and (q - k) % step == 0: the number of pairs on a diagonal rises
  // by one, stays, and falls by one, so a sum over diagonals is four ramps.
  function pairs(q0, q1, k0, k1, d0, d1, step) {
    if (q0 >= q1 || k0 >= k1) return 0n;
    const [n, m, first, s] = [q1 - q0, k1 - k0, q0 - k1 + 1, step].map(BigInt);
    const within = (x) => (x < 0n ? 0n : x > n + m ? n + m : x);
    const ramp = (u, start) => {
      // sum of t + 1 - start over start <= t < u on the comb
      const t0 = start + ((((-first - start) % s) + s) % s);
      const terms = u > t0 ? (u - t0 + s - 1n) / s : 0n;
      return terms * (t0 + 1n - start) + (s * terms * (terms - 1n)) / 2n;
    };
    const below = (u) => ramp(u, 0n) - ramp(u, n) - ramp(u, m) + ramp(u, n + m);
    const [low, high] = [within(BigInt(d0) - first), within(BigInt(d1) - first)];
    return high > low ? below(high) - below(low) : 0n;
  }
  // Pairs of a cell at which every one of these strided and chunked rules holds.
  function allHold(rules, [q0, q1, k0, k1, d0, d1], spend) {
    let step = 1;
    for (const r of rules) if (r.kind === "strided") step = Math.min(lcm(step, r.args[0]), 2 ** 40);
    const all = rules.filter((r) => r.kind === "chunked").map((r) => r.args[0]);
    const sizes = all.filter((a) => !all.some((b) => b < a && a % b === 0)); // the same small block, the same large one
    if (!sizes.length) return pairs(q0, q1, k0, k1, d0, d1, step);
    const inner = [Math.max(q0, k0), Math.min(q1, k1)]; // a block between these two holds all its pairs
    const last = Math.max(...inner);
    const whole = new Map(); // how many such blocks of each length
    let total = 0n;
    let start = Math.max(...sizes.map((s) => Math.floor(Math.min(...inner) / s) * s));
    while (start <= last) {
      spend(sizes.length);
      const end = Math.min(...sizes.map((s) => (Math.floor(start / s) + 1) * s));
      const length = end - start;
      const full = start >= inner[0] && end <= inner[1];
      const times = full ? (sizes.length === 1 ? Math.floor((inner[1] - start) / length) : 1) : 1;
      if (full) whole.set(length, (whole.get(length) || 0) + times);
      else total += pairs(Math.max(start, q0), Math.min(end, q1), Math.max(start, k0), Math.min(end, k1), d0, d1, step);
      start += times * length;
    }
    for (const [length, times] of whole) total += BigInt(times) * pairs(0, length, 0, length, d0, d1, step);
    return total;
  }
  // Visible pairs of T queries and T keys, a BigInt.
  function count(expr, T) {
    if (expr.heads) return expr.heads.reduce((sum, head) => sum + count(head, T), 0n);
    const found = leaves(expr);
    let steps = 0;
    const spend = (more) => {
      steps += more;
      if (steps > MOST_STEPS) throw new Error("Counting this pattern would take the page too long");
    };
    const ranges = (axis, low, high) => {
      const inner = found.flatMap((leaf) => cuts(leaf)[axis]).filter((v) => low < v && v < high);
      const edges = [low, ...[...new Set(inner)].sort((a, b) => a - b), high];
      return edges.slice(1).map((end, i) => [edges[i], end]);
    };
    const [qs, ks, ds] = [ranges("q", 0, T), ranges("k", 0, T), ranges("d", 1 - T, T)];
    let total = 0n;
    for (const [q0, q1] of qs)
      for (const [k0, k1] of ks)
        for (const [d0, d1] of ds) {
          if (q1 - k0 <= d0 || q0 - k1 + 1 >= d1) continue;
          total += counted(left(expr, q0, k0, d0), [q0, q1, k0, k1, d0, d1], spend);
        }
    return total;
  }
  // Pairs of a cell at which what is left of a rule holds.
  function counted(rule, cell, spend) {
    if (rule === false) return 0n;
    const used = rule === true ? [] : leaves(rule);
    const atoms = [...named(used).values()];
    if (atoms.length > MOST_ATOMS) {
      throw new Error(
        `${atoms.length} different strides and chunks meet; the page counts patterns of at most ${MOST_ATOMS}`,
      );
    }
    const places = new Map(used.map((leaf) => [leaf, atoms.findIndex((atom) => text(atom) === text(leaf))]));
    spend((used.length + 10) << atoms.length);
    const terms = Array.from({ length: 1 << atoms.length }, (_, bits) =>
      Number(rule === true || holds(rule, (leaf) => (bits >> places.get(leaf)) & 1)),
    );
    for (let bit = 1; bit < terms.length; bit <<= 1) {
      // weights whose sums over subsets are the answers
      for (let i = 0; i < terms.length; i++) if (i & bit) terms[i] -= terms[i ^ bit];
    }
    const held = (bits) => atoms.filter((_, a) => (bits >> a) & 1);
    return terms.reduce((sum, weight, i) => (weight ? sum + BigInt(weight) * allHold(held(i), cell, spend) : sum), 0n);
  }

  // The share of a pattern's heads that see each pair: T arrays of T numbers, 0 or 1 where there is one head.
  function shares(expr, T) {
    const heads = expr.heads || [expr];
    const seen = (q, k) => heads.filter((head) => visible(head, q, k)).length / heads.length;
    return Array.from({ length: T }, (_, q) => Array.from({ length: T }, (_, k) => seen(q, k)));
  }
  // Tiles of size x size over `shares`: each {q0, q1, k0, k1, state}, state 0 empty, 1 partial, 2 full.
  function tiles(grid, size) {
    const found = [];
    for (let q0 = 0; q0 < grid.length; q0 += size)
      for (let k0 = 0; k0 < grid.length; k0 += size) {
        const cells = grid.slice(q0, q0 + size).flatMap((row) => row.slice(k0, k0 + size));
        const state = cells.every((share) => share === 1) ? 2 : cells.some((share) => share > 0) ? 1 : 0;
        found.push({ q0, q1: Math.min(q0 + size, grid.length), k0, k1: Math.min(k0 + size, grid.length), state });
      }
    return found;
  }

  return { LARGEST, LONGEST, combine, count, negate, rule, shares, text, tiles, tooLarge, visible };
})();
