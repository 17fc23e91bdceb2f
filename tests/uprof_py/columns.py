"""The table of columns (§5.1), read from format-spec.md itself: their names stand nowhere else here."""

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "format-spec.md"
FORMS = {"dec": "d", "hex": "x"}


class Column(NamedTuple):
    """A row of the table."""

    number: int
    name: str
    entries: str
    entry: str
    # Where dump text has it by itself: "always", "if known" or "".
    dump: str
    # How: "d" or "x".
    form: str

    @property
    def has_entry_per_row(self):
        return self.entries == "one per row"


def read_table(name):
    """The cells of each row below `<!-- tags: NAME -->`."""
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    while next(lines) != f"<!-- tags: {name} -->":
        pass
    next(lines), next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def read_columns():
    for number, name, _, entries, entry, dump in read_table("Column"):
        if number.isdigit():
            form, _, when = dump.partition(", ")
            form = FORMS.get(form.removeprefix(f"`{name}=").removesuffix("`"), "")
            yield Column(int(number), name, entries, entry, (when or "always") if form else "", form)


COLUMNS = {column.name: column for column in read_columns()}
