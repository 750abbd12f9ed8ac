"""Copy the golden checkpoints and turn their answers into KDTR: python data/make_hf.py FOLDER (with full and k26)."""

import shutil
import sys
from pathlib import Path

import numpy as np

from kdtree import kdtr
from kdtree.reference.arrays import integers

HERE = Path(__file__).parent
SOURCE = "transformers 5.24.0, DeepseekV3ForCausalLM, eager attention and experts"


def main(source: str) -> None:
    """Write golden/hf/full and golden/hf/k26; integers become int32, which holds them all."""
    for name in ("full", "k26"):
        folder = HERE / "golden" / "hf" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(source, name, file), folder / file)
        with np.load(Path(source, name, "golden.npz")) as answers:
            arrays = {key: answers[key] for key in answers.files}
        smaller = {key: integers(key, array) if array.dtype.kind == "i" else array for key, array in arrays.items()}
        kdtr.save(folder / "golden.kdtr", smaller, {"source": SOURCE})


if __name__ == "__main__":
    main(*sys.argv[1:])
