"""The picture of the packages in docs/architecture.md, drawn from the imports.

    .venv/bin/python tests/architecture_picture.py

writes docs/assets/architecture.svg. `test_layers.py` checks that it is up to date, and that every
arrow points down. An arrow that follows from two others is left out.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/assets/architecture.svg"

Pair = tuple[str, str]
"""Two paths: what imports, and what is imported."""


@dataclass(frozen=True)
class Box:
    """A package's place in the picture, in pixels of its centre and its upper edge."""

    what: str
    x: int
    y: int
    wide: int = 160
    high: int = 52

    def near(self, x: int) -> int:
        """The place on its upper or lower edge that is nearest to `x`."""
        return min(max(x, self.x - self.wide // 2 + 16), self.x + self.wide // 2 - 16)


PACKAGES = {
    "scripts": Box("command lines", 600, 20),
    "seal/export": Box("checkpoint to model", 260, 110),
    "seal/exploration": Box("a model makes tasks", 430, 110),
    "seal/evaluation": Box("runs official programs", 430, 200),
    "seal/study": Box("compares recipes", 600, 110),
    "launcher.py": Box("starts a run", 770, 110),
    "benchmarks": Box("measurements", 940, 110),
    "examples": Box("the method in one file", 1195, 110),
    "seal/warm_up": Box("supervised training", 850, 200),
    "seal/logview": Box("pages over runs", 430, 290),
    "seal/launch": Box("checks, starts, watches", 690, 290),
    "seal/train": Box("verl with the method", 1020, 290),
    "env_service": Box("tools and verifier", 1195, 290),
    "seal/backbone": Box("tokenizer, template", 1000, 380),
    "seal/settings": Box("a recipe, typed", 1000, 470),
    "seal/tasks": Box("splits, data, pools", 780, 560),
    "seal/validation": Box("logs, pass rates", 560, 470),
    "seal/client": Box("client, dialogue loop", 1040, 560),
    "seal/records": Box("what a run leaves", 220, 685),
    "seal/coevolution": Box("the paper", 420, 685),
    "seal/formats": Box("text and tool calls", 620, 685),
    "seal/wire.py": Box("the HTTP contract", 820, 685),
    "seal/labels.py": Box("why a turn failed", 1020, 685),
}
METHOD = ("seal/records", "seal/coevolution", "seal/formats", "seal/wire.py", "seal/labels.py")
BAND = Box("the method, which every package may import", 620, 650, 1000, 102)

STYLE = """\
    .package { fill: #f6f8fa; stroke: #6e7781; stroke-width: 1.5; }
    .band { fill: #fff1d6; stroke: #9a6700; stroke-width: 1.5; }
    .name { font-size: 15px; font-weight: 600; fill: #1f2328; text-anchor: middle; }
    .what { font-size: 11.5px; fill: #424a53; text-anchor: middle; }
    .arrow { stroke: #768390; stroke-width: 2; marker-end: url(#head); }"""


def imports(path: Path) -> Iterator[str]:
    """Every module a file names in an import, at any depth of the code."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; name the module in full"
            # `from seal import launch` names seal.launch.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            packages = ("seal", "seal.launch", "env_service")
            yield from names if node.module in packages else [node.module or ""]


def arrows() -> set[Pair]:
    """Packages that import each other; those that follow from two others are left out."""
    modules = {package.removesuffix(".py").replace("/", "."): package for package in PACKAGES}
    direct: dict[str, set[str]] = {}
    for package in PACKAGES:
        path = ROOT / package
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            for name in imports(file):
                found = {modules[m] for m in modules if f"{name}.".startswith(f"{m}.")}
                direct.setdefault(package, set()).update(found - {package})

    def reached(package: str) -> set[str]:
        nexts = direct.get(package, set())
        return nexts.union(*map(reached, nexts))

    return {
        (package, nearest)
        for package, nexts in direct.items()
        for nearest in nexts
        if not any(nearest in reached(other) for other in nexts)
    }


def shown() -> set[Pair]:
    """The arrows of the picture: one to the method, or one to a package that leads to it."""
    found = arrows()
    above = {source for source, target in found if target not in METHOD}
    return {pair for pair in found if pair[1] not in METHOD or pair[0] not in above}


def picture() -> str:
    """The SVG."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1290 765" role="img" '
        'aria-labelledby="title"',
        "     font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">",
        '  <title id="title">The packages, and who imports whom</title>',
        f"  <style>\n{STYLE}\n  </style>",
        '  <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#768390"/></marker>',
        *_drawn("band", "", BAND, below=22),
        *(line for name, box in PACKAGES.items() for line in _drawn("package", name, box)),
        *sorted({_arrow(*pair) for pair in shown()}),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _drawn(kind: str, name: str, box: Box, below: int = 40) -> Iterator[str]:
    left = box.x - box.wide // 2
    size = f'width="{box.wide}" height="{box.high}" rx="8"'
    yield f'  <rect class="{kind}" x="{left}" y="{box.y}" {size}/>'
    if name:
        yield f'  <text class="name" x="{box.x}" y="{box.y + 23}">{name}</text>'
    yield f'  <text class="what" x="{box.x}" y="{box.y + below}">{box.what}</text>'


def _arrow(source: str, target: str) -> str:
    start, end = PACKAGES[source], PACKAGES[target]
    if source in METHOD:  # beside each other
        x1, x2 = start.x + start.wide // 2, end.x - end.wide // 2
        y1 = y2 = start.y + start.high // 2
    else:
        end = BAND if target in METHOD else end
        x2 = end.near(start.x)
        x1 = start.near(x2)
        y1, y2 = start.y + start.high, end.y
    return f'  <line class="arrow" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
