"""The package as a whole: light to import, honest about the machine."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers.documentation import ROOT
from tests.helpers.processes import run_python

import fm2
from fm2 import _native


def test_importing_needs_numpy_and_the_native_module_alone():
    heavy = {"polars", "torch", "rich", "pandas", "pyarrow", "sklearn", "tomli_w", "zstandard"}
    done = run_python(
        f"import sys, fm2; fm2.cpu_info(); fm2.Schema.preset('criteo'); print({heavy!r} & set(sys.modules))"
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_every_public_name_is_there():
    assert {"FmFMClassifier", "DeepFMClassifier"} <= set(dir(fm2))
    for name in {*fm2.__all__, *dir(fm2)}:
        assert getattr(fm2, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fm2.nonsense  # noqa: B018


def test_the_environment_forces_a_level():
    for level in fm2.cpu_info()["levels"]:
        assert run_python("import fm2; print(fm2.cpu_info()['level'])", FM2_SIMD=level).stdout.strip() == level
    message = run_python("import fm2; fm2.cpu_info()", FM2_SIMD="sse9").stderr
    assert re.search("FM2_SIMD must be one of generic.* on this machine, got 'sse9'", message)


def test_the_environment_sets_the_threads():
    assert run_python("import fm2; print(fm2.cpu_info()['threads'])", FM2_THREADS="3").stdout.strip() == "3"
    message = run_python("import fm2; fm2.cpu_info()", FM2_THREADS="many").stderr
    assert "FM2_THREADS must be a number between 1 and 1024, got 'many'" in message


@pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
@given(text=st.binary(max_size=300), marks=st.tuples(st.sampled_from("\t,a"), st.just("\n")))
def test_find_bytes_finds_what_numpy_finds(level, text, marks):
    a, b = marks
    values = np.frombuffer(text, np.uint8)
    expected = np.flatnonzero((values == ord(a)) | (values == ord(b)))
    assert _native.find_bytes(text, a, b, level) == expected.tolist()


def test_what_scikit_learn_brings_is_named():
    done = run_python("import sys; sys.modules['sklearn'] = None; import fm2; fm2.FmFMClassifier")
    assert "requires the package 'sklearn" in done.stderr
    assert "pip install -c constraints.txt '.[sklearn]'" in done.stderr


@pytest.mark.parametrize("code", ["fm2.train", "fm2.cli.main.main(['train', 'lr', {data!r}, '--out', 'run'])"])
def test_what_is_not_installed_is_named(code, dataset):
    code = code.format(data=str(dataset.path))
    done = run_python(f"import sys; sys.modules['torch'] = None; import fm2, fm2.cli.main; {code}")
    assert (
        "requires the package 'torch'; install it in a clone of fm2 with: pip install -c constraints.txt '.[train]'"
        in done.stderr
    )


def test_the_bindings_use_the_stable_abi_only():
    """Python 3.11 builds do not notice: nanobind offers the stable ABI from 3.12 on."""
    sources = [*(ROOT / "native" / "bindings").glob("*.cpp"), *(ROOT / "native" / "bindings").glob("*.h")]
    assert sources
    for source in sources:
        unstable = re.findall(
            r"\bPy\w+_(?:AS|GET)_[A-Z]+\b|->(?:tp|ob)_\w+|\bPy_SIZE\b", source.read_text(encoding="utf-8")
        )
        assert not unstable, f"{source.name}: {unstable}"
