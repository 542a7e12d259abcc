// Reads the pattern language, as attnjax/patterns/parse.py does, with the same words for what is wrong. It is the other
// half of patterns.js: the exception to "nothing is derived twice", compared with the library in the tests.
"use strict";
const language = (() => {
  const counted = (name, low, why) => ({ name, low, why });
  const WINDOW = "a window counts the query itself, so it is at least 1; for no limit write Causal()";
  const SIDE = "it counts keys beside the query, so it is at least 0; for no limit write None";
  const NAMES = {
    // arguments, and the rule that they make
    full: [[], () => patterns.rule("band", null, null)],
    causal: [[], () => patterns.rule("band", null, 0)],
    window: [[counted("window", 1, WINDOW)], (w) => patterns.rule("band", w - 1, 0)],
    band: [["left", "right"].map((side) => counted(side, 0, SIDE)), (l, r) => patterns.rule("band", l, r)],
    sink: [
      [counted("n", 1, "a sink keeps at least 1 token; for none leave Sink out")],
      (n) => patterns.rule("sink", n),
    ],
    strided: [[counted("stride", 1, "visible keys are at least 1 apart")], (s) => patterns.rule("strided", s)],
    chunked: [[counted("size", 1, "a chunk holds at least 1 token")], (s) => patterns.rule("chunked", s)],
    prefix: [
      [counted("n", 1, "a prefix holds at least 1 token; for none write Causal()")],
      (n) => patterns.rule("prefix", n),
    ],
  };
  const DEEPEST = 100; // parentheses and ~ inside each other
  const TOKEN =
    /\s*(?:(?<name>[A-Za-z_][\p{L}\p{N}_]*)|(?<int>[+-]?\d[\p{L}\p{N}_]*(?:\.[\p{L}\p{N}_]*)?)|(?<sign>[()|&~,]))/uy;

  const quoted = (text) => {
    const quote = text.includes("'") ? '"' : "'";
    return quote + text.replace(/\\/g, "\\\\") + quote;
  };
  const named = (got) => (got ? quoted(got) : "the end");

  class PatternError extends Error {
    constructor(what, source, place) {
      const [letters, column] = [[...source], [...source.slice(0, place)].length];
      const first = letters.length > 120 ? Math.max(0, column - 60) : 0; // of a long text, what stands around the place
      const shown = letters.slice(first, first + 120).join("");
      super(`cannot read pattern: ${what}\n  ${shown}\n  ${" ".repeat(column - first)}^`);
      Object.assign(this, { what, place });
    }
  }

  class Parser {
    constructor(source) {
      this.source = source;
      this.tokens = [];
      this.next = this.depth = 0;
      let place = 0;
      const end = source.trimEnd().length;
      while (place < end) {
        TOKEN.lastIndex = place;
        const match = TOKEN.exec(source);
        if (!match) {
          const start = end - source.slice(place, end).trimStart().length;
          const sign = String.fromCodePoint(source.codePointAt(start));
          this.fail(`${quoted(sign)} is not part of the pattern language`, start);
        }
        const [kind, word] = Object.entries(match.groups).find(([, found]) => found !== undefined);
        place = TOKEN.lastIndex;
        this.tokens.push({ kind, word, place: place - word.length });
      }
      this.tokens.push({ kind: "end", word: "", place: source.length });
    }
    get token() {
      return this.tokens[this.next];
    }
    fail(what, place) {
      throw new PatternError(what, this.source, place);
    }
    take(...wanted) {
      const { token } = this;
      const taken = wanted.includes(token.kind) || (token.kind === "sign" && wanted.includes(token.word));
      return taken ? this.tokens[this.next++] : null;
    }
    need(sign, after) {
      if (!this.take(sign)) this.fail(`expected '${sign}' ${after}, found ${named(this.token.word)}`, this.token.place);
    }
    whole() {
      const first = this.token;
      const result = first.kind === "name" && first.word.toLowerCase() === "perhead" ? this.heads() : this.union();
      const { kind, word, place } = this.token;
      if (kind !== "end") this.fail(`expected '|', '&' or the end, found ${quoted(word)}`, place);
      return result;
    }
    heads() {
      this.next += 1;
      this.need("(", "after perhead");
      const found = [this.union()];
      while (this.take(",")) found.push(this.union());
      this.need(")", "after the heads' patterns");
      return { heads: found };
    }
    union() {
      let result = this.intersection();
      while (this.take("|")) result = this.joined("|", this.token.place, result, this.intersection());
      return result;
    }
    intersection() {
      let result = this.single();
      while (this.take("&")) result = this.joined("&", this.token.place, result, this.single());
      return result;
    }
    joined(op, place, a, b) {
      const both = patterns.combine(op, [a, b]);
      const fault = patterns.tooLarge(both);
      if (fault) this.fail(fault, place);
      return both;
    }
    single() {
      const start = this.token.place;
      const opened = this.take("~", "(");
      if (opened) {
        this.depth += 1;
        if (this.depth > DEEPEST) this.fail(`parentheses and ~ stand more than ${DEEPEST} deep in each other`, start);
        const inner = opened.word === "~" ? patterns.negate(this.single()) : this.union();
        if (opened.word === "(") this.need(")", "to close the parenthesis");
        this.depth -= 1;
        return inner;
      }
      const name = this.take("name");
      if (name) return this.call(name.word, name.place);
      const { word, place } = this.token;
      return this.fail(`expected a pattern such as window(4), found ${named(word)}`, place);
    }
    call(word, place) {
      const name = word.toLowerCase();
      if (name === "where") {
        this.fail("where(fn) holds a Python function, so it has no text; build it with Where(fn)", place);
      }
      if (name === "perhead") this.fail("perhead(...) does not nest: it must be the outermost word", place);
      if (!Object.hasOwn(NAMES, name)) {
        const near = nearest(name);
        const hint = near ? `did you mean '${near}'?` : `the names are ${Object.keys(NAMES).join(", ")}`;
        this.fail(`there is no pattern ${quoted(word)}; ${hint}`, place);
      }
      this.need("(", `after ${word}`);
      const values = this.values(name);
      const [wanted, make] = NAMES[name];
      if (values.length !== wanted.length) {
        const plural = wanted.length === 1 ? "" : "s";
        this.fail(`${name} takes ${wanted.length} argument${plural}, got ${values.length}`, place);
      }
      wanted.forEach((argument, i) => this.check(argument, values[i], name === "band", place));
      return make(...values.map((value) => (value === null ? null : Number(value))));
    }
    values(name) {
      const found = [];
      while (!this.take(")")) {
        if (found.length) this.need(",", `between the arguments of ${name}`);
        const token = this.take("int", "name");
        if (!token || (token.kind === "name" && token.word.toLowerCase() !== "none")) {
          const { word, place } = token || this.token;
          this.fail(`expected an int or none, found ${named(word)}`, place);
        }
        if (token.kind === "int" && !/^[+-]?\d+$/.test(token.word))
          this.fail(`'${token.word}' is not an int`, token.place);
        // BigInt, so that the message about a number that is too large can name it exactly
        const digits = token.word.replace(/^[+-]/, "");
        found.push(token.kind === "name" ? null : BigInt(digits) * (token.word[0] === "-" ? -1n : 1n));
      }
      return found;
    }
    check({ name, low, why }, value, open, place) {
      if (value === null) {
        if (!open) this.fail(`${name}=None is a NoneType; it must be an int`, place);
      } else if (value < BigInt(low)) {
        this.fail(`${name}=${value} is too small: ${why}`, place);
      } else if (value > BigInt(patterns.LARGEST)) {
        const limit = `positions are int32, at most ${patterns.LARGEST}`;
        this.fail(`${name}=${value} is too large: ${limit}; ${why}`, place);
      }
    }
  }

  // The name most like a misspelt one, as Python's difflib finds it: shared runs of letters, at least half of both.
  function nearest(word) {
    const scored = Object.keys(NAMES).map((name) => [(2 * shared(name, word)) / (name.length + word.length), name]);
    scored.sort(([a, x], [b, y]) => b - a || (x < y ? 1 : -1));
    return scored[0][0] >= 0.5 ? scored[0][1] : null;
  }
  function shared(a, b) {
    let [best, at, bt] = [0, 0, 0];
    for (let i = 0; i < a.length; i++)
      for (let j = 0; j < b.length; j++) {
        let n = 0;
        while (i + n < a.length && j + n < b.length && a[i + n] === b[j + n]) n++;
        if (n > best) [best, at, bt] = [n, i, j];
      }
    if (!best) return 0;
    return best + shared(a.slice(0, at), b.slice(0, bt)) + shared(a.slice(at + best), b.slice(bt + best));
  }

  return { PatternError, parse: (source) => new Parser(source).whole() };
})();
