"""Pictures of heads: weights stand where rows and columns say, sinks apart, and what is no share is refused."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import attnjax as aj
from attnjax import show
from attnjax.show.labels import token_label
from attnjax.show.sheet import Box, Line, Words
from attnjax.show.weights import shrunk

TOKENS = ["The", " cat", " sat", " down"]


def uniform(layers, heads, T, S=None):
    """Every query looks at all keys equally."""
    S = T if S is None else S
    return np.full((layers, heads, T, S), 1 / S)


def causal(T, seed=0):
    weights = np.random.default_rng(seed).random((1, 1, T, T)) * np.tri(T)
    return weights / weights.sum(-1, keepdims=True)


def texts(picture):
    return [item.text for item in picture.items if isinstance(item, Words)]


def tips(picture, kind):
    return [item.tip for item in picture.items if isinstance(item, kind) and item.tip]


def test_each_cell_says_its_query_its_key_and_its_weight():
    weights = causal(4)
    found = tips(show.heads(weights, TOKENS, head=(0, 0)), Box)
    assert found == [
        f"{token_label(TOKENS[row])} looks at {token_label(TOKENS[column])}: {weights[0, 0, row, column]:.3f}"
        for row in range(4) for column in range(4)
    ]  # fmt: skip


def test_cells_are_as_dark_as_the_weight_and_stand_in_its_row_and_column():
    weights = np.zeros((1, 1, 4, 4))
    weights[0, 0, :, 0] = 1
    weights[0, 0, 2] = [0.25, 0.75, 0, 0]
    drawn = show.heads(weights, TOKENS, head=(0, 0))
    cells = [item for item in drawn.items if isinstance(item, Box) and item.ink == "seen"]
    rows, columns = sorted({box.y for box in cells}), sorted({box.x for box in cells})
    placed = {(rows.index(box.y), columns.index(box.x)): box.opacity for box in cells}
    assert placed == {(0, 0): 1, (1, 0): 1, (2, 0): 0.25, (2, 1): 0.75, (3, 0): 1}


def test_lines_run_from_the_query_to_its_keys_and_only_those_asked_for():
    weights = causal(4)
    found = tips(show.heads(weights, TOKENS, head=(0, 0), query=2), Line)
    assert [tip.split(":")[0] for tip in found] == [f"·sat looks at {key}" for key in ("The", "·cat", "·sat")]
    assert len(tips(show.heads(weights, TOKENS, head=(0, 0)), Line)) == 10


def test_the_description_says_where_the_word_looks_most():
    w = aj.trace(*(getattr(show.CHAPTER, n) for n in ("x", "wq", "wk", "wv")), pattern=aj.Causal()).weights[None, None]
    said = show.heads(w, show.CHAPTER.tokens, head=(0, 0), query=2).description
    assert said.startswith("head 0.0: sat looks at cat 0.70, The 0.15, sat 0.15")


def test_all_heads_have_a_map_with_their_number_or_name():
    drawn = show.heads(uniform(2, 3, 4), TOKENS, names={(1, 2): "induction"})
    assert [t for t in texts(drawn) if t[0].isdigit() and "." in t] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2 induction"]
    assert drawn.title == "6 heads, 4 x 4 words"
    assert len([item for item in drawn.items if isinstance(item, Box) and item.ink == "seen"]) == 6 * 16


def test_the_missing_share_is_a_learned_sinks():
    """Scores 0 and a sink logit 0: of n + 1 equal shares the sink has one."""
    weights = aj.weights(jnp.zeros((1, 1, 4, 4)), aj.visible(aj.Causal(), 4, 4), sink_logits=jnp.zeros(1))
    drawn = show.heads(weights, TOKENS, head=(0, 0))
    assert "(sink)" in texts(drawn) and "learned sink" in drawn.description
    column = [item.opacity for item in drawn.items if isinstance(item, Box) and item.ink == "mixed"]
    assert column == pytest.approx([1 / 2, 1 / 3, 1 / 4, 1 / 5], abs=1 / 32)
    assert "The looks at (sink): 0.500" in tips(drawn, Line)
    said = show.heads(weights, TOKENS, head=(0, 0), query=3).description
    assert "(sink) 0.20" in said
    assert [item for item in show.heads(weights, TOKENS).items if isinstance(item, Box) and item.ink == "mixed"]


def test_rounding_is_no_sink():
    weights = causal(4).astype(ml_dtypes.bfloat16)
    assert (weights.astype(np.float64).sum(-1) != 1).any()
    assert "(sink)" not in texts(show.heads(weights, TOKENS, head=(0, 0)))
    slack = uniform(1, 1, 4)
    slack[0, 0, 1] *= 1.0009
    show.heads(slack, TOKENS)


def test_a_row_that_sees_nothing_is_drawn_and_said():
    drawn = show.heads(np.zeros((1, 1, 2, 2)), ["a", "b"], head=(0, 0), query=0)
    assert "a looks at (sink) 1.00" in drawn.description and "where a row sees no key" in drawn.description


def test_one_word_has_only_itself_to_look_at():
    drawn = show.heads(np.ones((1, 1, 1, 1)), ["alone"], head=(0, 0), query=0)
    assert "alone looks at alone 1.00" in drawn.description
    assert "a single word has only itself to look at" in drawn.description
    assert show.heads(np.ones((2, 2, 1, 1)), ["alone"]).svg()


def test_keys_may_be_other_words_than_queries():
    drawn = show.heads(uniform(1, 1, 2, 3), ["x", "y"], keys=["p", "q", "r"], head=(0, 0))
    assert set("xypqr") <= set(texts(drawn)) and "x looks at r: 0.333" in tips(drawn, Box)


def test_long_texts_are_shrunk_and_lines_left_out():
    T = 200
    drawn = show.heads(causal(T), [f"w{i}" for i in range(T)], head=(0, 0), query=150)
    assert "words and lines are drawn for up to 40 words" in drawn.description
    assert "w150 looks at" in drawn.description
    assert len(drawn.items) < 64 * 64 + 20 and not tips(drawn, Line)


def test_shrinking_keeps_what_a_mean_row_gives_to_each_stretch_of_keys():
    matrix = causal(10)[0, 0]
    small = shrunk(matrix, 4)
    assert small.shape == (4, 4)
    expected = [[matrix[r : r + 3, c : c + 3].sum() / len(matrix[r : r + 3]) for c in (0, 3, 6, 9)] for r in (0, 3, 6, 9)]
    assert np.abs(small - expected).max() < 1e-12 and np.abs(small.sum(1) - 1).max() < 1e-12
    assert shrunk(matrix, 10) is matrix


def test_token_text_is_escaped():
    text = show.heads(uniform(1, 1, 1), ["<img src=x onerror=alert(1)>"], head=(0, 0), query=0, title="<i>").svg()
    assert "<img" not in text and "<i>" not in text and "&lt;img" in text


def bad(change):
    weights = uniform(1, 1, 4)
    change(weights)
    return weights


REFUSED = [
    (uniform(1, 1, 4)[0], TOKENS, r"must be \[layers, heads, T, S\], got the shape \(1, 4, 4\); pass weights\[None\]"),
    (uniform(1, 1, 4)[0, 0], TOKENS, r"got the shape \(4, 4\); pass weights\[None, None\]"),
    (uniform(1, 1, 4)[None], TOKENS, r"pass one sequence, without a batch axis"),
    (np.zeros((0, 2, 4, 4)), TOKENS, r"hold no head"),
    (uniform(1, 1, 4), [], r"tokens is empty: there is no word that could look at another"),
    (uniform(1, 1, 4), TOKENS[:3], r"tokens has 3 words, but weights \(1, 1, 4, 4\) has 4 rows"),
    (uniform(1, 1, 4, 6), TOKENS, r"tokens has 4 words, but weights \(1, 1, 4, 6\) has 6 columns; pass keys="),
    (bad(lambda w: w.__imul__(2)), TOKENS, r"row 0 of layer 0, head 0 sums to 2: rows are queries and sum to 1"),
    (bad(lambda w: w[0, 0, 3].__imul__(1.002)), TOKENS, r"row 3 of layer 0, head 0 sums to 1.002: .* no more than 1.001"),
    (bad(lambda w: w.__setitem__((0, 0, 2, 1), -0.5)), TOKENS, r"weights\[0, 0, 2, 1\]=-0.5 is below 0: pass weights after the softmax"),
    (bad(lambda w: w.__setitem__((0, 0, 1, 3), np.nan)), TOKENS, r"weights\[0, 0, 1, 3\]=nan is not a finite number"),
    (bad(lambda w: w.__setitem__((0, 0, 1, 3), -np.inf)), TOKENS, r"=-inf is not a finite number"),
]


@pytest.mark.parametrize(("weights", "tokens", "said"), REFUSED)
def test_what_is_no_set_of_shares_is_refused(weights, tokens, said):
    with pytest.raises(ValueError, match=said):
        show.heads(weights, tokens)


def test_words_must_be_text():
    with pytest.raises(TypeError, match=r"tokens\[1\]=17 is a int: give the text of each token, not its id"):
        show.heads(uniform(1, 1, 2), ["a", 17])
    with pytest.raises(TypeError, match="tokens is one str, 'abcd': give a list of words"):
        show.heads(uniform(1, 1, 4), "abcd")
    with pytest.raises(TypeError, match="weights must be numbers"):
        show.heads(np.full((1, 1, 1, 1), "x"), ["a"])


def test_a_head_or_a_query_that_is_not_there_is_refused():
    weights = uniform(2, 3, 4)
    with pytest.raises(ValueError, match=r"head=\(2, 0\) is not there: weights hold 2 layers of 3 heads"):
        show.heads(weights, TOKENS, head=(2, 0))
    with pytest.raises(TypeError, match=r"head=1 must be a pair \(layer, head\)"):
        show.heads(weights, TOKENS, head=1)
    with pytest.raises(ValueError, match="query=4 is beyond the last row: there are 4 queries"):
        show.heads(weights, TOKENS, head=(0, 0), query=4)
    with pytest.raises(ValueError, match=r"query=1 picks a row of one head: say which with head=\(layer, head\)"):
        show.heads(weights, TOKENS, query=1)


def test_heads_are_written_as_svg_and_png(tmp_path):
    drawn = show.heads(causal(4), TOKENS, head=(0, 0), query=3)
    assert drawn.save(tmp_path / "h.svg").read_text().startswith("<svg")
    assert drawn.save(tmp_path / "h.png").read_bytes()[:4] == b"\x89PNG"


def test_bfloat16_weights_of_the_library_are_drawn():
    """Each weight is rounded to 8 bits, so that rows sum to up to 1.008."""
    found = aj.weights(jnp.zeros((1, 40, 40), jnp.bfloat16), jnp.tril(jnp.ones((40, 40), bool)))[None].astype(jnp.bfloat16)
    assert float(found.astype(jnp.float32).sum(-1).max()) > 1.001
    show.heads(found, [f"w{i}" for i in range(40)])
    with pytest.raises(ValueError, match="sums to 1.002"):
        show.heads(np.asarray(found, np.float32), [f"w{i}" for i in range(40)])


def test_a_row_of_small_shares_looks_at_something():
    weights = np.full((1, 1, 300, 300), 1 / 300)
    drawn = show.heads(weights, [f"w{i}" for i in range(300)], head=(0, 0), query=299)
    assert "w299 looks at w0 <0.01, w1 <0.01" in drawn.description
