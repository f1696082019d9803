"""Python imports this before a script, if this directory is on PYTHONPATH: it starts the watch, then whatever file of this
name the user has.
"""

import os
import sys
from importlib import import_module

HERE = os.path.dirname(os.path.abspath(__file__))


def start_watch() -> None:
    try:
        import_module("tokpress_watch").start()
    finally:  # a script should find the path that it has without us
        sys.path[:] = [path for path in sys.path if not path or os.path.abspath(path) != HERE]


def go_on() -> None:
    """The one that would have been imported without us."""
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


start_watch()
go_on()
