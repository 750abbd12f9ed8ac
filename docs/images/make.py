"""Make the pictures of README.md from the shipped trace and the shipped pair: python docs/images/make.py."""

import io
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from kdtree import Seeded, cli, speculative
from kdtree.cli.continuation import Continuation
from kdtree.cli.demo import PROMPT
from kdtree.shipped import tiny_pair, tiny_prompts

HERE = Path(__file__).parent
COLUMNS = 80
ON_PAPER = TerminalTheme((255, 255, 255), (27, 31, 36), [(0, 0, 0)] * 8)
PAGE = """\
<svg viewBox="0 36 {width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 20px }}
{styles}
</style>
<defs>{lines}</defs>
<rect x="0" y="36" width="100%" height="100%" rx="8" fill="#ffffff"/>
<g transform="translate({terminal_x}, {terminal_y})"><g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


def main() -> None:
    """Write both."""
    assert cli.run(["sweep", "--out", str(HERE / "accept_length.png")]) == 0
    (HERE / "demo.svg").write_text(demo())


def demo() -> str:
    """Return the picture of what `kdtree demo` writes in a terminal with colours."""
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, color_system="truecolor", no_color=False, width=COLUMNS
    )
    target, drafter = tiny_pair()
    prompt, text = tiny_prompts()[PROMPT], Continuation(in_bytes=True, console=console)
    text.legend()
    text.prompt(prompt[1:].tolist())
    speculative(
        target, drafter, [prompt], budget=64, max_new_tokens=256, sampler=Seeded(0.5, 0),
        on_round=lambda _, tokens: text.round(tokens),
    )  # fmt: skip
    text.close()
    return console.export_svg(theme=ON_PAPER, code_format=PAGE, unique_id="demo", title="")


if __name__ == "__main__":
    main()
