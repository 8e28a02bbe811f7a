"""Draw the pictures of docs/pictures from the lake of the README's *By hand*: docs/pictures/draw.py FOLDER.

The lake is that of LAKE_HOME. The same lake gives the same bytes.
"""

import io
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

WIDTH = 118
# Without the fonts that rich would load from the network.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
PICTURES = {
    "shell": [
        "FROM tables;",
        "SELECT event_type, count(*) AS events FROM bronze.events GROUP BY ALL ORDER BY ALL;",
        "SELECT window_start, count(*) AS users FROM gold.user_activity GROUP BY ALL ORDER BY ALL;",
    ],
    "dead-letters": [
        "SELECT reasons[1].code AS why, count(*) AS dead_letters FROM dead_letters.events GROUP BY ALL ORDER BY ALL;",
        "SELECT reason.code, reason.path, reason.detail[:70] AS detail FROM "
        "(SELECT unnest(reasons) AS reason FROM dead_letters.events ORDER BY _source, _position) LIMIT 8;",
        "SELECT raw[:100] AS raw FROM dead_letters_text.events ORDER BY _source, _position LIMIT 3;",
    ],
}


def answer(statement: str) -> str:
    """What the shell prints for a statement."""
    done = subprocess.run(
        [sys.executable, "-m", "reader", "shell"], input=statement, capture_output=True, text=True, check=True
    )
    return done.stdout


def draw(name: str, statements: list[str], folder: Path) -> None:
    """Draw a session of the shell."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for statement in statements:
        console.print(Text.assemble(("lake D ", "bold green"), statement))
        console.print(Text(answer(statement)))
    svg = console.export_svg(title="reader shell", unique_id=name, code_format=FORMAT)
    (folder / f"{name}.svg").write_text(svg)


def main() -> None:
    """Draw all pictures into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, statements in PICTURES.items():
        draw(name, statements, folder)


if __name__ == "__main__":
    main()
