"""The table as plain text: one line for attnjax or for a number without rival, one for each rival."""

COLUMNS = "{:<32} {:<18} {:>9} {:>8} {:>14} {:>9} {:>6}  {}"
HEAD = COLUMNS.format("row", "side", "seconds", "ratio", "min..max", "at least", "aim", "")


def number(value, digits=2):
    """Empty for None."""
    return "" if value is None else f"{value:.{digits}f}"


def verdict(value, required, aim, better):
    """Which targets the value reaches; better(value, target) is whether it does."""
    if required is None:
        return ""
    if not better(value, required):
        return "missed"
    return "aim reached" if aim is not None and better(value, aim) else "reached"


def rival_line(rival):
    """One rival's seconds and ratio, or why it did not run."""
    if "absent" in rival:
        return COLUMNS.format("", rival["name"], *[""] * 5, rival["absent"])
    ratio, required, aim = rival["ratio"], rival["at_least"], rival["aim"]
    around = f"{ratio['min']:.2f}..{ratio['max']:.2f}"
    word = verdict(ratio["median"], required, aim, lambda value, target: value >= target)
    cells = number(rival["seconds"]["median"], 4), number(ratio["median"]), around, number(required), number(aim), word
    return COLUMNS.format("", rival["name"], *cells)


def text(entry):
    """The lines of one row."""
    if "value" in entry:
        required, aim = entry["at_most"], entry["aim"]
        word = verdict(entry["value"], required, aim, lambda value, target: value <= target)
        shown = f"{entry['value']:.2f} {entry['unit']}"
        limits = f"<= {number(required, 1)}", number(aim, 1)
        return COLUMNS.format(entry["row"], "attnjax", shown, "", "", *limits, word).rstrip()
    bound = f"bound {entry['bound']:.4f} s" if "bound" in entry else ""
    head = COLUMNS.format(entry["row"], "attnjax", number(entry["seconds"]["median"], 4), *[""] * 4, bound)
    return "\n".join(line.rstrip() for line in [head, *map(rival_line, entry["rivals"])])
