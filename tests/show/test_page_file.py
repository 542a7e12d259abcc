"""The file itself, without a browser: one file, nothing fetched, the library's numbers, text that cannot break out."""

import json
import pathlib
import re

import jax
import numpy as np
import pytest
from flax import nnx

import attnjax as aj
from attnjax import heads, models
from attnjax.show import CHAPTER, page
from attnjax.show.page import assemble, hand_set, numbers, sources, trained

FOLDER = pathlib.Path(page.__file__).parent


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        path = page.write(folder / "new" / "deep")
    assert [p.name for p in path.parent.iterdir()] == ["index.html"] == [path.name]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(html):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text)


def test_nothing_is_fetched(html):
    outside = re.findall(r"https?://[^\s\"']+", html)
    assert set(outside) == {"http://www.w3.org/2000/svg"}  # the name of a namespace
    for word in ("@import", "url(", "fetch(", "XMLHttpRequest", "import(", "<iframe", "sendBeacon", "WebSocket", " src="):
        assert word not in html, word
    assert re.findall(r'href="([^"]*)"', html) == ["data:,"]
    assert "default-src 'none'" in html and "{{" not in html


def test_every_script_of_the_folder_is_in_the_page_and_keeps_the_budget(html):
    scripts = sorted(path.name for path in FOLDER.glob("*.js"))
    assert sorted(assemble.SCRIPTS) == scripts
    for name in scripts:
        text = (FOLDER / name).read_text()
        assert text in html and text.startswith("// ") and '"use strict";' in text, name
        assert text.count("\n") <= 300 and max(map(len, text.splitlines())) <= 120, name
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|TODO|console\.", text), name


def test_the_one_exception_says_so():
    text = (FOLDER / "patterns.js").read_text()
    assert "the one place outside attnjax/patterns/" in text.replace("\n// ", " ")


def test_the_steps_are_those_of_trace(data):
    c = CHAPTER
    steps = aj.trace(c.x, c.wq, c.wk, c.wv, pattern=aj.Causal())
    assert data["steps"]["tokens"] == list(c.tokens)
    assert list(data["steps"]["trace"]) == list(steps._fields)
    for name, rows in data["steps"]["trace"].items():
        found = np.array([[-np.inf if v is None else v for v in row] for row in rows])
        np.testing.assert_array_equal(found, getattr(steps, name), err_msg=name)


def test_saturation_is_the_librarys(data):
    found = data["saturation"]
    for d, draw, average in zip(found["sizes"], found["draws"], found["averages"], strict=True):
        if d == 64:  # other draws of the same kind: a thousand of them agree within a few percent
            many = heads.saturation(d)
            for side, theirs in (("raw", many.raw), ("scaled", many.scaled)):
                for name in ("spread", "largest", "gradient"):
                    assert average[side][name] == pytest.approx(getattr(theirs, name), rel=0.1), (side, name)
        assert average["raw"]["spread"] == pytest.approx(np.sqrt(d), rel=0.1)
        raw, scaled = (np.array(draw[side]["scores"]) for side in ("raw", "scaled"))
        np.testing.assert_allclose(scaled, raw / np.sqrt(d), rtol=1e-5)
        for side, scores in (("raw", raw), ("scaled", scaled)):
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            np.testing.assert_allclose(draw[side]["weights"], weights, rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(draw[side]["gradients"], weights * (1 - weights), rtol=2e-4, atol=1e-6)
    at_64 = found["draws"][found["sizes"].index(64)]
    assert max(at_64["raw"]["weights"]) > 0.95 and max(at_64["scaled"]["weights"]) < 0.5  # what the figure is there to show


def test_named_patterns_parse_and_count_as_the_chapter_says(data):
    computed = data["computed"]
    texts = [pattern["text"] for pattern in computed["patterns"]]
    for text in texts:
        aj.parse(text.replace("{w}", "4"))
    first = texts[computed["start"]]
    assert aj.parse(first.replace("{w}", str(computed["window"]))).count(computed["length"]) == 70
    assert aj.parse(first.replace("{w}", str(computed["longWindow"]))).count(computed["long"]) == 528_611_328


def test_heads_set_by_hand_look_where_they_say(data):
    scene = data["heads"]
    assert "set by hand" in scene["note"] and len(scene["heads"]) == 4
    tokens = [token.strip() for token in scene["sentences"][0]["tokens"]]
    animal, street, it = (tokens.index(word) for word in ("animal", "street", "it"))
    tired, wide = (np.array(weights) for weights in scene["weights"])
    assert tired[0, -1, animal] > 0.8 and wide[0, -1, street] > 0.8
    assert abs(tired[0, it, animal] - tired[0, it, street]) < 1e-9 < tired[0, it, street] > 0.3  # it hedges
    np.testing.assert_array_equal(tired[:, it], wide[:, it])  # and cannot see the last word
    assert heads.previous_token(tired[1]) > 0.9 and heads.first_token(tired[3]) > 0.7
    assert tired[2, tokens.index("cross"), animal] > 0.9
    assert [s["value"] for s in scene["heads"][1]["scores"]][0] == float(heads.previous_token(tired[1]))
    for weights in (tired, wide):
        np.testing.assert_allclose(weights.sum(axis=-1), 1)
        assert not np.triu(weights, 1).any()


NASTY = "</script><img src=x onerror=alert(1)>", "a & b", "\u2028\u2029", "<!--", "]]>", "'\"\\", "{{data}}"


def test_no_text_can_leave_the_data(html):
    text = assemble.embedded(list(NASTY))
    assert json.loads(text) == list(NASTY)
    assert not set("<>&\u2028\u2029") & set(text)
    whole = assemble.html({"tokens": list(NASTY)})
    assert whole.count("</script>") == html.count("</script>")
    (found,) = re.findall(r'id="data">(.*?)</script>', whole, re.S)
    assert json.loads(found) == {"tokens": list(NASTY)}


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        assemble.embedded([float("nan")])
    assert numbers.plain(np.array([[0.5, -np.inf]])) == [[0.5, None]]


def small(folder, vocab=trained.VOCAB):
    config = models.Config(
        vocab_size=vocab, d_model=16, num_layers=2, num_heads=4, num_kv_heads=2, layout="LG",
        legend={"L": "window(4)", "G": "causal()"},
    )  # fmt: skip
    models.save(models.Decoder(config, rngs=nnx.Rngs(0)), folder)
    return folder


@pytest.mark.slow
def test_a_model_that_train_check_left_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = small(tmp_path / trained.LEFT / trained.ROW)
    scene = sources.find(None)
    assert "train check" in scene.note and trained.ROW in scene.note
    model = models.load(folder)
    letters = {token: i for i, token in enumerate("–abcdefghijklmno")}
    for sentence, weights in zip(scene.sentences, scene.weights, strict=True):
        ids = [letters[t] if t in letters else int(t) + trained.FIRST_VALUE for t in sentence.tokens]
        assert sentence.start == len(ids) - 1
        found = jax.jit(lambda m, x: m(x, return_weights=True).weights)(model, np.array([ids]))
        for head, own in zip(scene.heads, weights, strict=True):
            layer, number = map(int, head.where.split("."))
            np.testing.assert_allclose(own, found[layer][0, number], atol=1e-6)
    assert len({head.where for head in scene.heads}) == 4
    best = np.array([heads.previous_token(np.asarray(layer[0])) for layer in found])
    assert len(best) == 2 and scene.plain()["heads"][0]["name"] == "Previous token"


@pytest.mark.slow
def test_a_model_of_another_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"vocabulary of 64; the figures read .*mqar-gqa"):
        sources.find(small(tmp_path / "other", vocab=64))


def test_a_missing_model_is_named_and_no_page_is_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model at .*nowhere.gguf: name a GGUF file"):
        page.write(tmp_path / "site", model=tmp_path / "nowhere.gguf")
    assert not (tmp_path / "site").exists()


def test_an_earlier_page_is_replaced_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index.html").write_text("old")
    monkeypatch.setattr(assemble, "data", lambda scene: {})
    monkeypatch.setattr(assemble, "html", lambda data: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        page.write(tmp_path)
    assert (tmp_path / "index.html").read_text() == "old"
    monkeypatch.setattr(assemble, "html", lambda data: "new")
    assert page.write(tmp_path).read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.html"]


def test_sentences_share_all_words_but_the_last():
    first, second = (sentence.tokens for sentence in hand_set.scene().sentences)
    assert first[:-1] == second[:-1] and (first[-1], second[-1]) == (" tired", " wide")
    assert "".join(first) + "." == hand_set.SENTENCE.format("tired")
