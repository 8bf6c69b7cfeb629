"""Pictures of Pillow among a cell's results: those that it shows, and those that it saves to a file.
There is no screen that show() could use. This module does not import Pillow: it waits until a cell does."""

import functools
import importlib.abc
import importlib.util
import os
import sys

NAME = "PIL.Image"
OWN = ("PIL", "matplotlib")  # modules that save pictures for another purpose


def hook(pillow, display):
    """Let show() and save() of Pillow's images show them in the results."""
    save = pillow.Image.save

    def show(self, *args, **kwargs):
        display(self)

    @functools.wraps(save)
    def save_and_show(self, fp, *args, **kwargs):
        save(self, fp, *args, **kwargs)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if isinstance(fp, (str, bytes, os.PathLike)) and caller.split(".")[0] not in OWN:
            display(self)

    pillow.Image.show, pillow.Image.save = show, save_and_show


class Import(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Hooks Pillow as soon as something imports it."""

    def __init__(self, display):
        self.display, self.loader = display, None

    def find_spec(self, name, path=None, target=None):
        if name != NAME or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # the rest finds the module itself
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        hook(module, self.display)


def install(display):
    """Show Pillow's pictures by display, now or once Pillow is there."""
    if NAME in sys.modules:
        hook(sys.modules[NAME], display)
    else:
        sys.meta_path.insert(0, Import(display))
