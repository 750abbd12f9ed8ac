"""The recorded answers of the published code."""

from importlib.resources import files
from pathlib import Path

from kdtree import kdtr

DATA = Path(str(files("kdtree"))) / "data"


def tree_build_cases():
    """Return {"000": {"budget": array, ...}, ...}."""
    cases = {}
    for name, array in kdtr.load(DATA / "golden" / "tree_build.kdtr").tensors.items():
        case, _, field = name.partition("/")
        cases.setdefault(case, {})[field] = array
    return cases
