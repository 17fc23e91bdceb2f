#!/usr/bin/env python3
"""One table of what the benchmarks measured, beside the last one committed.

    benches/table.py LOG [--save]

Takes the lines of LOG that a benchmark prints for it, with tabs between their fields:

    figure  WHAT  OURS  UNIT  PEER  THEIRS  GOAL

PEER and THEIRS may be empty. GOAL is empty, or `ours` or `ratio` (OURS / THEIRS) with `<= N`, `>= N`
or `N to M`. The trend compares with benches/figures.tsv, ratios with ratios where there is a peer, as
those depend less on the machine. --save puts the new figures there, in place of those of the same name,
and all of them into benches/README.md, between the marks that it has for them.
"""

import datetime
import pathlib
import sys

TABLE = pathlib.Path(__file__).with_name("figures.tsv")
PAGE = pathlib.Path(__file__).with_name("README.md")
MARKS = "<!-- figures: written by benches/table.py -->\n", "<!-- end of figures -->\n"
FIELDS = ("what", "ours", "unit", "peer", "theirs", "goal")


def figure(fields):
    one = dict(zip(FIELDS, fields))
    theirs = float(one["theirs"] or 0)
    one["ratio"] = float(one["ours"]) / theirs if theirs else None
    return one


def key(one):
    return one["what"], one["peer"]


def measured(log):
    lines = (line.rstrip("\n").split("\t") for line in log)
    return [figure(line[1:]) for line in lines if line[0] == "figure" and len(line) == 1 + len(FIELDS)]


def committed():
    """Figures and their dates by name; none if nothing is committed yet."""
    if not TABLE.exists():
        return {}
    lines = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    figures = [(figure(line[1:]), line[0]) for line in lines]
    return {key(one): (one, date) for one, date in figures}


def verdict(one):
    """`met`, or by how much it isn't."""
    if not one["goal"]:
        return ""
    judged, *bounds = one["goal"].split()
    value = one["ratio"] if judged == "ratio" else float(one["ours"])
    match bounds:
        case ["<=", most]:
            missed, bound = value > float(most), float(most)
        case [">=", least]:
            missed, bound = value < float(least), float(least)
        case [least, "to", most]:
            bound = float(least) if value < float(least) else float(most)
            missed = not float(least) <= value <= float(most)
    return f"missed: {value / bound:.2f} times" if missed else "met"


def trend(one, before):
    if not before:
        return "new"
    both = one["ratio"], before[0]["ratio"]
    now, then = both if None not in both else (float(one["ours"]), float(before[0]["ours"]))
    return f"{(now / then - 1) * 100:+.0f} % since {before[1]}" if then else ""


def row(one):
    peer = f"{one['theirs']} {one['unit']}, {one['peer']}" if one["peer"] else ""
    ratio = f"{one['ratio']:.3g}" if one["ratio"] is not None else ""
    return one["what"], f"{one['ours']} {one['unit']}", peer, ratio, one["goal"], verdict(one)


def show(figures, before):
    rows = [("what", "ours", "peer", "ratio", "goal", "", "trend")]
    rows += [(*row(one), trend(one, before.get(key(one)))) for one in figures]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for texts in rows:
        print("  ".join(text.ljust(width) for text, width in zip(texts, widths)).rstrip())


def save(figures, before):
    today = datetime.date.today().isoformat()
    kept = {**before, **{key(one): (one, today) for one in figures}}
    lines = ["\t".join((date, *(one[field] for field in FIELDS))) for one, date in kept.values()]
    TABLE.write_text("\n".join(["\t".join(("date", *FIELDS)), *lines]) + "\n", encoding="utf-8")
    write_page(sorted(kept.values(), key=lambda pair: key(pair[0])))


def write_page(figures):
    rows = [("what", "ours", "peer", "ratio", "goal", "", "measured"), ("---",) * 7]
    rows += [(*row(one), date) for one, date in figures]
    table = "".join(f"| {' | '.join(texts)} |\n" for texts in rows)
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    PAGE.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", encoding="utf-8")


def main():
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
            figures = measured(log)
    except (IndexError, OSError) as error:
        sys.exit(f"give the log of a benchmark: {error}")
    before = committed()
    show(figures, before)
    if "--save" in sys.argv[2:]:
        save(figures, before)
    missed = sum(verdict(one).startswith("missed") for one in figures)
    print(f"{len(figures)} figures, {missed} goals missed")


if __name__ == "__main__":
    main()
