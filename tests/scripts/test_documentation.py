"""The pages of README.md and docs/ name what is there: files, anchors, error sentences."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*ROOT_PAGES, *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```[\s\S]*?^```|^    [^\n]*$", re.MULTILINE)
PATH = re.compile(
    r"`((?:seal|env_service|scripts|benchmarks|examples|tests|exp|requirements|docs|data|evidence)/[\w./-]+)`"
)
MADE_LATER = "env_service/environments/bfcl/bfcl_data/"


def anchors(page: Path) -> set[str]:
    """Of every heading, as code hosts make them."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text("utf-8"))):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    for path in PATH.findall(page.read_text("utf-8")):
        if "NAME" not in path and not path.startswith(MADE_LATER):
            assert (ROOT / path).exists() or is_metric(path), path


def is_metric(name: str) -> bool:
    """Whether the sources write a metric of this name, e.g. seal/entropy."""
    found = ["git", "grep", "--quiet", "--fixed-strings", f"{name}", "--", "seal"]
    return not Path(name).suffix and subprocess.run(found, cwd=ROOT, check=False).returncode == 0


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def texts() -> Iterator[str]:
    """Every text of the sources, with `...` for each value that is put into it."""
    for folder in ("seal", "env_service", "scripts", "."):
        for path in (ROOT / folder).glob("*.py" if folder == "." else "**/*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    parts = [v.value if isinstance(v, ast.Constant) else "..." for v in node.values]
                    yield "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
    # A text in two pieces, as the shell has it.
    yield re.sub(r'" \\\n\s*"', " ", (ROOT / "install.sh").read_text("utf-8"))


def test_every_sentence_of_the_errors_is_one_of_the_programs() -> None:
    page = (ROOT / "docs/errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    assert len(rows) > 50
    said = list(texts())
    unknown = []
    for sentence in rows:
        pieces = [re.escape(piece) for piece in sentence.split("...")]
        pattern = re.compile(".*?".join(pieces), re.DOTALL)
        if not any(pattern.search(text) for text in said):
            unknown.append(sentence)
    assert unknown == []
