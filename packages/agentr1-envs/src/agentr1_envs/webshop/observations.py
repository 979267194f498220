"""A page as an observation: `text`, `text_rich`, `url`, or `html` for people."""

from collections.abc import Callable
from html import escape
from typing import Literal

from agentr1_envs.webshop.pages import Node, Visit

ObservationMode = Literal["text", "text_rich", "url", "html"]
OBSERVATION_MODES: tuple[ObservationMode, ...] = ("text", "text_rich", "url", "html")


def observe(visit: Visit, mode: ObservationMode) -> str:
    """The page the customer sees, in a mode."""
    return _MODES[mode](visit)


def _visible(visit: Visit) -> list[Node]:
    return [node for node in visit.nodes() if node.text not in ("", "\n")]


def as_text(visit: Visit) -> str:
    """The visible texts in one line."""
    return " [SEP] ".join(node.text.strip() for node in _visible(visit))


def as_rich_text(visit: Visit) -> str:
    """A line for each visible text, with marks around what can be clicked and what was."""
    url = visit.url()
    page = ""
    for node in _visible(visit):
        text = node.text
        if node.kind == "button":
            line = f"[button] {text} [button_]"
        elif node.kind == "product":
            mark = "clicked button" if text in visit.seen else "button"
            line = f"\n[{mark}] {text} [{mark}_]"
        elif node.kind == "option":
            # The benchmark looks a value up in the address, so one beyond ASCII never counts as chosen here.
            mark = "clicked button" if f'"{text}"' in url else "button"
            line = f"  [{mark}] {text} [{mark}_]"
            if mark == "clicked button":
                page = f"You have clicked {text}.\n{page}"
        else:
            line = text
        page += f"{line}\n"
    return page


def as_html(visit: Visit) -> str:
    """A plain page for a browser; chosen values are bold."""
    lines = [f"<!DOCTYPE html>\n<title>WebShop</title>\n<!-- {escape(visit.url()).replace('--', '- -')} -->"]
    for node in _visible(visit):
        text = escape(node.text)
        if node.kind == "button":
            lines.append(f"<button>{text}</button>")
        elif node.kind == "product":
            lines.append(f'<p><a href="#">{text}</a></p>')
        elif node.kind == "option":
            chosen = visit.options.get(node.option) == node.text
            lines.append(f"<button><b>{text}</b></button>" if chosen else f"<button>{text}</button>")
        else:
            lines.append(f"<p>{text}</p>")
    return "\n".join(lines) + "\n"


_MODES: dict[ObservationMode, Callable[[Visit], str]] = {
    "text": as_text,
    "text_rich": as_rich_text,
    "url": Visit.url,
    "html": as_html,
}
