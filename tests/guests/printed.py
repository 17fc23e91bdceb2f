"""What uniprof prints of a recording, as values."""


def stacks(folded):
    """Of `export -f folded`: each stack, outermost frame first and without names of images, and its count:
    [(("main", "work"), 17), ...]."""
    rows = (line.rsplit(" ", 1) for line in folded.splitlines())
    return [(tuple(name.split("`")[-1] for name in stack.split(";")), int(count)) for stack, count in rows]


def weight(sample):
    """What one of `samples` counts as in `stacks`: 1, or where rates may change the microseconds that it stands for."""
    return max(round(int(sample["period"]) / 1000), 1) if sample.get("period", "-") != "-" else 1


def samples(dump):
    """Of `dump`: the fields of each sample."""
    lines = (line.split() for line in dump.splitlines() if line.startswith("sample "))
    return [dict(field.split("=", 1) for field in line[1:]) for line in lines]
