#!/usr/bin/env python3
"""A to-do list: the model uses the tool `todo`, you use the panel that /todo opens. The list is
kept in the extension's data directory."""

from __future__ import annotations

import json
import os
import threading
from typing import Annotated, Any, Literal

from zot_ext import Extension, Reply, ToolFailed, open_panel

ext = Extension("todo", "1.0.0")
panel = ext.panel("todo", "To do", footer="up/down move, enter checks, d deletes, esc closes")
lock = threading.Lock()
Item = dict[str, Any]  # text, done
cursor = 0


def path() -> str:
    return os.path.join(ext.host.data_dir, "todo.json")


def load() -> list[Item]:
    try:
        with open(path(), encoding="utf-8") as file:
            items: list[Item] = json.load(file)
            return items
    except FileNotFoundError:
        return []


def save(items: list[Item]) -> None:
    with open(path() + ".new", "w", encoding="utf-8") as file:
        json.dump(items, file)
    os.replace(path() + ".new", path())
    draw(items)


def draw(items: list[Item]) -> None:
    marks = {True: "x", False: " "}
    panel.render(
        f"{'>' if i == cursor else ' '} {i + 1}. [{marks[item['done']]}] {item['text']}"
        for i, item in enumerate(items)
    )


@ext.tool
def todo(
    action: Annotated[Literal["list", "add", "done", "remove"], "what to do"],
    text: Annotated[str, "for add: what is to be done"] = "",
    number: Annotated[int, "for done and remove: which one, from 1"] = 0,
) -> str:
    """The user's to-do list. Add steps before long work, and mark them done as you go."""
    with lock:
        items = load()
        if action == "add":
            if not text:
                raise ToolFailed("add needs a text")
            items.append({"text": text, "done": False})
        elif action != "list":
            if not 1 <= number <= len(items):
                raise ToolFailed(f"there is no item {number}; the list has {len(items)}")
            if action == "done":
                items[number - 1]["done"] = True
            else:
                del items[number - 1]
        save(items)
    lines = [
        f"{i}. [{'x' if item['done'] else ' '}] {item['text']}" for i, item in enumerate(items, 1)
    ]
    return "\n".join(lines) or "the list is empty"


@ext.command("todo", "open the to-do list; with a text, add it")
def command(args: str) -> Reply | str:
    if args:
        return todo("add", args)
    with lock:
        draw(load())
    return open_panel(panel)


@panel.on_key
def key(key: str, text: str) -> None:
    global cursor
    with lock:
        items = load()
        if key == "esc":
            panel.close()
            return
        if key == "up":
            cursor = max(0, cursor - 1)
        elif key == "down":
            cursor = min(len(items) - 1, cursor + 1)
        elif key == "enter" and items:
            items[cursor]["done"] = not items[cursor]["done"]
        elif text == "d" and items:
            del items[cursor]
            cursor = max(0, min(cursor, len(items) - 1))
        save(items)


ext.run()
