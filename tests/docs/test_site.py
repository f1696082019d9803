"""The site is built strictly, asks nothing of the network, and its reference has every command, option and name."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest

import tokpress
from tokpress.cli import tokpress as command_line
from tokpress.options import OPTIONS

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import reference_pages  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
COMMANDS = dict(reference_pages._all_commands("tokpress", command_line))
NAMES = [name for name in tokpress.__all__ if name not in ("__version__", "events", "view")]


def _build(directory: Path, *, docs: Path = ROOT / "docs") -> subprocess.CompletedProcess[str]:
    config = (ROOT / "mkdocs.yml").read_text().replace("docs_dir: docs", f"docs_dir: {docs}")
    config = config.replace("[tools/site_hook.py]", f"[{ROOT}/tools/site_hook.py]")
    (directory / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(directory / "mkdocs.yml")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*command, "--site-dir", str(directory / "site")],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    built = _build(directory)
    assert built.returncode == 0, built.stderr
    return directory / "site"


class TestSite:
    def test_has_all_parts(self, site: Path) -> None:
        home = (site / "index.html").read_text()
        for part in ("Start", "Guides", "Reference", "Explanation", "Troubleshooting"):
            assert re.search(rf">\s*{part}\s*<", home), part

    def test_loads_nothing_from_elsewhere(self, site: Path) -> None:
        loads = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="?(?:https?:)?//[^" >]+')
        for page in site.rglob("*.html"):
            found = [link for link in loads.findall(page.read_text()) if "canonical" not in link]
            assert not found, page
        for sheet in site.rglob("*.css"):
            assert not re.search(r"(?:@import|url\()\s*[\"']?https?:", sheet.read_text()), sheet

    @pytest.mark.parametrize("link", ["nowhere.md", "design.md#no-such-heading", "../no/such/file.py"])
    def test_a_link_that_leads_nowhere_is_an_error(self, tmp_path: Path, link: str) -> None:
        (tmp_path / "docs").mkdir()
        for page in re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()):
            (tmp_path / "docs" / page).parent.mkdir(exist_ok=True)
            (tmp_path / "docs" / page).write_text("# A page\n")
        assert _build(tmp_path, docs=tmp_path / "docs").returncode == 0
        (tmp_path / "docs" / "start.md").write_text(f"# Start\n\n[a link]({link})\n")
        assert link in _build(tmp_path, docs=tmp_path / "docs").stderr

    @pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
    def test_a_diagram_is_described_and_has_two_looks(self, picture: Path) -> None:
        root = ET.parse(picture).getroot()
        assert {child.tag.rpartition("}")[2] for child in root} >= {"title", "desc", "style"}
        assert "prefers-color-scheme: dark" in picture.read_text()
        assert "http" not in picture.read_text().replace("http://www.w3.org/2000/svg", "")


class TestReference:
    @pytest.mark.parametrize("page", list(reference_pages.PAGES))
    def test_is_current(self, page: str) -> None:
        made = reference_pages.PAGES[page]().rstrip("\n") + "\n"
        assert (REFERENCE / page).read_text() == made, "run: make docs"

    @pytest.mark.parametrize("path", list(COMMANDS))
    def test_has_every_command_and_each_of_its_options(self, path: str) -> None:
        page = (REFERENCE / "commands.md").read_text()
        (part,) = re.findall(rf"(?ms)^## {re.escape(path)}$(.*?)(?=^## |\Z)", page)
        for option in COMMANDS[path].params:
            if isinstance(option, click.Option):
                assert max(option.opts, key=len) in part

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_has_every_option_of_a_build(self, option: object) -> None:
        assert f"`{option.name}`" in (ROOT / "docs" / "options.md").read_text()  # type: ignore[attr-defined]

    @pytest.mark.parametrize("name", NAMES)
    def test_has_every_public_name_and_its_members(self, name: str) -> None:
        page = (REFERENCE / "python.md").read_text()
        (part,) = re.findall(rf"(?ms)^## tokpress\.{name}$(.*?)(?=^## |\Z)", page)
        value = getattr(tokpress, name)
        if inspect.isclass(value):
            for member, _ in reference_pages.public_members(value):
                assert f"- `{member}" in part


@pytest.mark.parametrize("name", NAMES)
class TestDocstrings:
    def test_have_an_example(self, name: str) -> None:
        documentation = inspect.getdoc(getattr(tokpress, name)) or ""
        assert re.search(rf"(?m)^    .*tokpress\.({name}|open)\b", documentation)

    def test_name_every_parameter_that_does_not_explain_itself(self, name: str) -> None:
        value = getattr(tokpress, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            return
        documentation = inspect.getdoc(value) or ""
        parameters = [p for p in inspect.signature(value).parameters if p not in ("self", "args", "kwargs")]
        missing = [p for p in parameters if not re.search(rf"\b{p}\b", documentation)]
        assert missing == []
