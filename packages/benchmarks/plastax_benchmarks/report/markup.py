"""HTML as a tree, so that text is always escaped."""

import json
from typing import Any
from xml.etree.ElementTree import Element, tostring


def tag(kind: str, /, *content: "Element | str | None", **attributes: str) -> Element:
    """An element with text and other elements in it. `class_` stands for `class`, and `data_x` for `data-x`."""
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    element = Element(kind, names)
    last: Element | None = None
    for each in content:
        if isinstance(each, str):
            if last is None:
                element.text = (element.text or "") + each
            else:
                last.tail = (last.tail or "") + each
        elif each is not None:
            element.append(each)
            last = each
    return element


def as_html(element: Element) -> str:
    """A page as text. Scripts and styles are not escaped, all other text is."""
    return "<!DOCTYPE html>\n" + tostring(element, encoding="unicode", method="html") + "\n"


def as_script_data(value: Any) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
