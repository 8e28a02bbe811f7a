"""Build the docs site: ``build.py SITE``.

Pages, and the files that they refer to, are copied to a folder in which all links lead as they do in the repository;
a reference is made of the programs, their docstrings and the contracts, and a sample lake has its page.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from tests.reader.page.sample import write_sample_page

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "target" / "site-source"
PROGRAMS = ("lakeproof", "producer", "collector", "consumer", "reader")
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
ROWS = re.compile(r"^\| \[([^\]]+)\]\(([^)\s#:]+\.md)\)", re.MULTILINE)
SAMPLE = "reference/sample-lake.html"
Nav = list[dict[str, Any]]


def copy_pages() -> None:
    """Copy all pages, and what they link to."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text()
        for target, _ in LINK.findall(text):
            _copy((page.parent / target).resolve())
        folders = [target for target, _ in LINK.findall(text) if (page.parent / target).is_dir()]
        for target in folders:
            text = text.replace(f"]({target})", f"]({target}/README.md)")
        _write(page.relative_to(ROOT), as_markdown(text))
    for picture in re.findall(r'src="([^"]+)"', (ROOT / "README.md").read_text()):
        _copy(ROOT / picture)


def as_markdown(text: str) -> str:
    """The text for a parser that wants an empty line before lists and tables, as GitHub's does not."""
    lines, fenced = [""], False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        begins = next((begin for begin in ("- ", "1. ", "|") if line.startswith(begin)), None)
        same = lines[-1].startswith(("- ", "  ", "|")) or re.match(r"\d+\. ", lines[-1])
        if begins and not fenced and lines[-1] and not same:
            lines.append("")
        lines.append(line)
    return "\n".join(lines[1:]) + "\n"


def _copy(path: Path) -> None:
    """Copy a file that a page links to; a folder becomes a page that lists its files."""
    to = SOURCE / path.relative_to(ROOT)
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if each.is_file())
        for name in names:
            _copy(path / name)
        _write(path.relative_to(ROOT) / "README.md", f"# {path.name}\n\n" + "".join(f"- [{n}]({n})\n" for n in names))
    elif path.suffix != ".md" and path.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def _write(path: Path, text: str) -> None:
    (SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / path).write_text(text)


def write_reference() -> Nav:
    """Write the pages of the reference; returns their navigation."""
    commands, packages = [], []
    for program in PROGRAMS:
        rooms = []
        path = f"reference/commands/{program}.md"
        docs = [sys.executable, "-m", "typer", f"{program}.cli", "utils", "docs", "--name", program]
        _write(Path(path), subprocess.run(docs, check=True, capture_output=True, text=True).stdout)
        commands.append({program: path})
        for room in sorted((ROOT / "src" / program).iterdir()):
            module = f"{program}.{room.stem}"
            if room.name.startswith("_") or room.name in ("cli", "cli.py") or not _is_module(room):
                continue
            path = f"reference/python/{module}.md"
            _write(Path(path), f"# {module}\n\n::: {module}\n")
            rooms.append({module: path})
        packages.append({program: rooms})
    streams = sorted(path.stem for path in (ROOT / "contracts").glob("*.yaml"))
    text = "# JSON Schema of the shipped contracts\n\nMade by `lakeproof contract json-schema`.\n"
    for stream in streams:
        command = [sys.executable, "-m", "lakeproof", "contract", "json-schema", stream]
        schema = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        text += f"\n## {stream}\n\nThe [contract](../contracts/{stream}.yaml).\n\n```json\n{schema}```\n"
        _copy(ROOT / "contracts" / f"{stream}.yaml")
    _write(Path("reference/contracts.md"), text)
    model = "# Parts of a contract\n\nSee also [the schema of a contract file](../docs/contracts/schema.md).\n\n"
    _write(Path("reference/model.md"), f"{model}::: lakeproof.contracts.model\n")
    return [
        {"A sample lake": "reference/sample.md"},
        {"Commands": commands},
        {"Contracts": [{"Parts of a contract": "reference/model.md"}, {"JSON Schema": "reference/contracts.md"}]},
        {"Python": packages},
    ]


def _is_module(room: Path) -> bool:
    return room.suffix == ".py" or (room / "__init__.py").exists()


def write_sample() -> None:
    """Write the page of a sample lake, and a page around it."""
    (SOURCE / SAMPLE).parent.mkdir(parents=True, exist_ok=True)
    lake = SOURCE.with_name("sample-lake")
    shutil.rmtree(lake, ignore_errors=True)
    write_sample_page(lake, SOURCE / SAMPLE)
    name = Path(SAMPLE).name
    _write(
        Path("reference/sample.md"),
        f"# A sample lake\n\nIts producer sends garbage in its last hours. [The page alone]({name}), as `reader page` "
        f"wrote it on {datetime.now(UTC):%Y-%m-%d}, and below. See also [what is on it](../docs/page.md).\n\n"
        f'<iframe src="../{name}" title="The page of a sample lake" width="100%" height="900"></iframe>\n',
    )


def navigation(reference: Nav) -> Nav:
    """The sections of docs/README.md; a README in a folder has the pages that it lists below it."""
    sections = re.split(r"^## ", (ROOT / "docs" / "README.md").read_text(), flags=re.MULTILINE)[1:]
    found: Nav = [{"Home": "README.md"}]
    for section in sections:
        title, _, table = section.partition("\n")
        found.append({title: list(_pages(Path("docs"), table))})
    found[1]["Start"] += [{"All pages": "docs/README.md"}, {"Changelog": "CHANGELOG.md"}]
    return [*found, {"Reference": reference}]


def _pages(folder: Path, table: str) -> Iterator[dict[str, Any]]:
    for title, target in ROWS.findall(table):
        page = folder / target
        links = LINK.findall((ROOT / page).read_text()) if page.name == "README.md" else []
        # Pages of a folder have their own titles.
        below = dict.fromkeys(str(page.parent / name) for name, _ in links if re.fullmatch(r"[\w-]+\.md", name))
        yield {title: [str(page), *below] if below else str(page)}


def main(site: Path) -> None:
    """Build the site; a link that leads nowhere is an error."""
    copy_pages()
    write_sample()
    base = ROOT / "deploy" / "site" / "mkdocs.yml"
    settings = {"INHERIT": str(base), "docs_dir": str(SOURCE), "site_dir": str(site.absolute())}
    settings["nav"] = navigation(write_reference())
    settings["plugins"] = {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT / "src")]}}}}
    configuration = SOURCE.with_suffix(".yml")
    configuration.write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(configuration)]
    # Without Material's note on its successor: docs/decisions/0055-release.md has it.
    sys.exit(subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False).returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
