"""The table as plain text: one line for attnjax, one for each rival."""

COLUMNS = "{:<32} {:<18} {:>9} {:>8} {:>15} {:>8} {:>6}  {}"
HEAD = COLUMNS.format("row", "side", "seconds", "ratio", "min..max", "at least", "aim", "")


def number(value, digits=2):
    """Empty for None."""
    return "" if value is None else f"{value:.{digits}f}"


def verdict(ratio, at_least, aim):
    """Which of a rival's targets the ratio reaches."""
    if at_least is None:
        return ""
    if ratio < at_least:
        return "missed"
    return "aim reached" if aim is not None and ratio >= aim else "reached"


def text(measured):
    """The lines of one row."""
    lines = [COLUMNS.format(measured["row"], "attnjax", number(measured["seconds"]["median"], 4), *[""] * 5)]
    for rival in measured["rivals"]:
        if "absent" in rival:
            lines.append(COLUMNS.format("", rival["name"], *[""] * 5, rival["absent"]))
            continue
        ratio = rival["ratio"]
        around = f"{ratio['min']:.2f}..{ratio['max']:.2f}"
        targets = rival["at_least"], rival["aim"]
        seconds = number(rival["seconds"]["median"], 4)
        cells = number(ratio["median"]), around, *map(number, targets), verdict(ratio["median"], *targets)
        lines.append(COLUMNS.format("", rival["name"], seconds, *cells))
    return "\n".join(line.rstrip() for line in lines)
