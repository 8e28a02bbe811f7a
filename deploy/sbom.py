"""Complete a bill of materials by crates and jars, check it, and list the licenses.

``sbom.py PYTHON.cdx.json CRATES.json JARS.sha256... DIST``; the first is of cyclonedx-py, the second of cargo metadata.
"""

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

Component = dict[str, Any]
_CACHE = Path.home() / ".ivy2" / "cache"
_UNKNOWN = "not declared"


def crates(metadata: Path) -> Iterator[Component]:
    """The crates that the native judge is built from."""
    for package in json.loads(metadata.read_text())["packages"]:
        if package["source"]:
            yield _component("cargo", package["name"], package["version"], [package["license"]])


def jars(listed: Path) -> Iterator[Component]:
    """The jars of a list of hashes, with the licenses that Ivy has read."""
    described = {}
    for path in _CACHE.glob("*/*/ivy-*.xml"):
        info = None
        with suppress(ET.ParseError):  # Ivy copies descriptions as they are
            info = ET.parse(path).getroot().find("info")  # noqa: S314 - written by Ivy on this machine
        if info is not None:
            described[f"{info.get('module')}-{info.get('revision')}"] = info
    for line in listed.read_text().splitlines():
        digest, name = line.split()
        stem = name.removeprefix("./").removesuffix(".jar")
        known = next((described[key] for key in (stem, stem.rpartition("-")[0]) if key in described), None)
        name, _, version = stem.rpartition("-")
        group = ""
        if known is not None:
            name, version, group = (known.get(key, "") for key in ("module", "revision", "organisation"))
        licenses = [each.get("name", "") for each in known.findall("license")] if known is not None else []
        component = _component("maven", name, version, licenses, group)
        yield component | {"hashes": [{"alg": "SHA-256", "content": digest}]}


def _component(kind: str, name: str, version: str, licenses: list[str], group: str = "") -> Component:
    path = f"{group}/{name}" if group else name
    purl = f"pkg:{kind}/{path}@{version}"
    made: Component = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
    if group:
        made["group"] = group
    if names := [each for each in licenses if each]:
        made["licenses"] = [{"license": {"name": each}} for each in names]
    return made


def _kind(component: Component) -> str:
    return str(component.get("purl", "pkg:pypi/")).split("/")[0].removeprefix("pkg:")


def licenses_of(component: Component) -> str:
    """The licenses of a component, in a line."""
    names = [
        entry.get("expression") or entry["license"].get("id") or entry["license"]["name"]
        for entry in component.get("licenses", [])
        if entry.get("license", {}).get("acknowledgement") != "concluded"
    ]
    # Some packages have the text of a license in place of its name.
    short = dict.fromkeys(re.sub(r"\s+", " ", name)[:80].replace("License :: OSI Approved :: ", "") for name in names)
    return "; ".join(short) or _UNKNOWN


def main(python: Path, metadata: Path, lists: list[Path], dist: Path) -> None:
    """Write the bill of materials and the list of licenses."""
    bom = json.loads(python.read_text())
    added = {each["bom-ref"]: each for part in (crates(metadata), *map(jars, lists)) for each in part}
    bom["components"] += added.values()
    text = json.dumps(bom, indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"Error: the bill of materials is not valid: {error}")
    version = bom["metadata"]["component"]["version"]
    (dist / f"lakeproof-{version}.cdx.json").write_text(text)
    others = [each for each in bom["components"] if not each["name"].startswith("lakeproof")]
    rows = sorted((_kind(each), each["name"], each["version"], licenses_of(each)) for each in others)
    lines = ["# Licenses of all dependencies", "", "| from | package | version | license |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    (dist / "LICENSES.md").write_text("\n".join(lines) + "\n")
    missing = [f"{name} {version}" for _, name, version, license_ in rows if license_ == _UNKNOWN]
    sys.stdout.write(f"{len(rows)} components. Without a declared license: {', '.join(missing) or 'none'}.\n")


if __name__ == "__main__":
    *given, folder = map(Path, sys.argv[1:])
    main(given[0], given[1], given[2:], folder)
