"""Text of strangers made fit to draw: tokens of a tokenizer, names of runs, patterns."""

import unicodedata

# What a tokenizer hands out as a token and nobody could see in a picture.
SEEN = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def drawable(text: str) -> str:
    """Text without what XML forbids and no font can draw: control characters and halves of surrogate pairs."""
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cs") or c in "￾￿" else c for c in text)


def token_label(token: str, longest: int = 14) -> str:
    """A token as it is drawn: leading and trailing blanks visible, shortened in the middle of nowhere but its end."""
    body = token.strip(" \n\t\r")
    head = token[: len(token) - len(token.lstrip(" \n\t\r"))]
    tail = token[len(head) + len(body) :]
    text = "".join(SEEN[c] for c in head) + body + "".join(SEEN[c] for c in tail)
    return shortened(drawable(text), longest)


def shortened(text: str, longest: int) -> str:
    """At most so many characters, the last one an ellipsis if something is left out."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def width(text: str, size: float) -> float:
    """About how wide a text is drawn: fonts differ, so layouts leave room."""
    wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    return 0.6 * size * wide


def broken(text: str, longest: int) -> list[str]:
    """A long line as several, between words."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= longest:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines
