"""Put back, each of these faults is found by the test of its case: the tests of cases can fail.

A fault is an edit of one place of the package. It is made in a copy, in which the test of the case then runs in a
process of its own. An edit whose place is gone fails here: move it to where the rule lives now.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MASKS, GRADIENTS = "cases/test_masks_and_numbers.py", "cases/test_gradients_and_programs.py"


class Fault(NamedTuple):
    """What went wrong elsewhere, where the same is done here, and the file of the test that has to see it."""

    case: str
    said: str
    tests: str
    file: str
    right: str
    wrong: str


FAULTS = (
    Fault("M02", "a window of 0 is taken as a width", MASKS, "patterns/shipped.py",
          'checked("window", window, 1, rule)', 'checked("window", window, 0, rule)'),
    Fault("M05", "without a mask the causal rule is skipped", MASKS, "call.py",
          "seen = seen if mask is None else", "seen = jnp.ones_like(seen) if mask is None else"),
    Fault("M06", "the offset of the queries is forgotten", MASKS, "call.py",
          "return self.options.q_offset + rows if offset is None", "return rows if offset is None"),
    Fault("M08", "a row without keys divides 0 by 0", MASKS, "blend.py",
          "    empty = part.sum == 0\n", "    empty = part.sum < 0\n"),
    Fault("M10", "True hides on one path", MASKS, "call.py",
          "seen if mask is None else seen & mask", "seen if mask is None else seen & ~mask"),
    Fault("M11", "segment ids are taken and not used", MASKS, "segments.py",
          "return (q == k) & (q >= 0)", "return (q >= 0) & (k >= 0)"),
    Fault("M13", "the far edge of a window has the wrong sign", MASKS, "patterns/leaves.py",
          "inside & (d <= self.left)", "inside & (d >= -self.left)"),
    Fault("M14", "a window works only under the causal rule", MASKS, "patterns/leaves.py",
          "inside & (d >= -self.right)", "inside & (d >= 0)"),
    Fault("M17", "axes of size 1 do not broadcast", MASKS, "shapes.py",
          "all(a in (1, b) for a, b", "all(a == b for a, b"),
    Fault("N01", "hidden scores are a large number", MASKS, "backends/tiled/layout.py",
          "jnp.where(self.seen(at), self.split(s), -jnp.inf)", "jnp.where(self.seen(at), self.split(s), -65504.0)"),
    Fault("N05", "the cap comes after the mask", MASKS, "reference.py",
          "    w_BNTS, lse_BNT = softmax(",
          "    s_BNTS = rule(jnp.where(visible, s_BNTS, -jnp.inf))\n"
          "    visible = jnp.ones_like(visible)\n"
          "    w_BNTS, lse_BNT = softmax("),
    Fault("N07", "the cap is accepted and not used", MASKS, "scores.py",
          "return x if soft_cap is None else soft_cap * jnp.tanh(x / soft_cap)", "return x"),
    Fault("N11", "hidden keys and values stay in the products", MASKS, "call.py",
          "jnp.where(seen[:, :, None, None], x, jnp.zeros_like(x)) for x in", "x for x in"),
    Fault("S01", "heads that do not divide are let through", MASKS, "shapes.py",
          "num_heads < 1 or num_heads % num_kv_heads:", "num_heads < 1:"),
    Fault("S02", "key heads are repeated 0 1 0 1", MASKS, "blend.py",
          "return o.reshape(B, T, N, v.shape[3])", "return o.swapaxes(2, 3).reshape(B, T, N, v.shape[3])"),
    Fault("G07", "second derivatives come out as 0", GRADIENTS, "seam.py",
          "return pullback_p.bind(*primals, static=static, tree=tree, closed=closed), tangent",
          "return pullback_p.bind(*primals, static=static, tree=tree, closed=closed), [0 * x for x in tangent]"),
    Fault("D02", "a negative rate is let through", GRADIENTS, "dropout.py",
          "if not 0.0 <= rate < 1.0 or math.isnan(rate):", "if rate >= 1.0 or math.isnan(rate):"),
    Fault("D04", "all rows and heads drop alike", GRADIENTS, "dropout.py",
          "for word in (n, i, j):", "for word in (j,):"),
    Fault("D05", "the key is not used", GRADIENTS, "dropout.py",
          "return folded[None]", "return jnp.zeros_like(folded)[None]"),
    Fault("R06", "short inputs are scaled by dynamic NTK too", "test_rope_scaling.py", "rope_scaling.py",
          "return plain * max(1.0, per_position * float(length) - (self.factor - 1)) ** exponents",
          "return plain * self.factor**exponents"),
    Fault("N13", "parameters take the dtype of the computation", "nn/test_norm_mlp_embed.py", "nn/norm.py",
          "jnp.ones((self.dim,), param_dtype)", "jnp.ones((self.dim,), dtype)"),
)  # fmt: skip


def test_at_least_ten_cases_are_put_back_and_each_has_its_test():
    assert len({fault.case for fault in FAULTS}) == len(FAULTS) >= 10
    for fault in FAULTS:
        tests = (ROOT / "tests" / fault.tests).read_text()
        assert re.search(rf"^def test_{fault.case}_", tests, re.M | re.I), f"{fault.tests} has no test of {fault.case}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.case)
def test_the_place_of_a_fault_is_still_there(fault):
    found = (ROOT / "attnjax" / fault.file).read_text().count(fault.right)
    assert found == 1, f"{fault.file} holds {fault.right!r} {found} times: put the fault where the rule lives now"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.case}: {fault.said}")
def test_the_fault_is_found(fault, tmp_path):
    for folder in ("attnjax", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    place = tmp_path / "attnjax" / fault.file
    text = place.read_text()
    assert text.count(fault.right) == 1
    place.write_text(text.replace(fault.right, fault.wrong))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q", "-x", "--tb=short", "-rfE",
         "-k", f"test_{fault.case}_", f"tests/{fault.tests}"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    failed = rf"^FAILED tests/{re.escape(fault.tests)}::test_{fault.case}_"
    assert run.returncode == 1, f"the tests of {fault.case} did not fail: {run.stdout}{run.stderr}"
    assert re.search(failed, run.stdout, re.M | re.I) and not re.search("^ERROR", run.stdout, re.M), run.stdout
