"""Typed data of matplotlib's figures and pandas' tables, for display beside their pictures.

A figure's data is what E2B's clients call a chart. One axes is one chart; a figure with several is a
"superchart" of them. The types of charts and their fields are those that the clients declare. This
module imports neither matplotlib nor pandas: it only looks at objects that are made of them."""

import datetime
import math
import re

MOST_ELEMENTS = 50_000  # of one figure; a figure with more has a picture only
CHART, DATA = "e2b/chart", "e2b/data"


class TooMany(Exception):
    """The figure has more elements than MOST_ELEMENTS."""


class Budget:
    """Counts the elements of a figure."""

    def __init__(self):
        self.left = MOST_ELEMENTS

    def take(self, n):
        self.left -= n
        if self.left < 0:
            raise TooMany


def plain(value):
    """Make a value that JSON has: a number, a text or None."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()  # a number of numpy's
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return None if value != value else value.isoformat()  # NaT is not equal to itself
    return str(value)


def text(value):
    """Give a text, or None for an empty one."""
    return value or None


def unit(label):
    """Give the unit in a label: the last thing in brackets."""
    found = re.search(r"[(\[]([^()\[\]]*)[)\]]\s*$", label or "")
    return text(found.group(1).strip()) if found else None


def name(artist):
    """Give an artist's label. One that matplotlib made up begins with an underscore."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


class Axis:
    """One of the axes' two axis: its scale, and its numbers in the terms of the data."""

    def __init__(self, axis):
        self.axis = axis
        # The attribute became a method in matplotlib 3.10.
        get = getattr(axis, "get_converter", None)
        converter = get() if get else getattr(axis, "converter", None)
        kind = type(converter).__name__
        self.dates = "Date" in kind or "Datetime" in kind or "Period" in kind
        self.categories = {}
        if "Category" in kind:
            mapping = getattr(axis.units, "_mapping", {})
            self.categories = {number: label for label, number in mapping.items()}

    @property
    def scale(self):
        if self.dates:
            return "datetime"
        return "categorical" if self.categories else self.axis.get_scale()

    def value(self, number):
        number = plain(number)
        if self.dates and isinstance(number, (int, float)):
            from matplotlib.dates import num2date

            return num2date(number).replace(tzinfo=None).isoformat()
        if self.categories and isinstance(number, (int, float)):
            return self.categories.get(number, number)
        return number

    def ticks(self):
        return [self.value(t) for t in self.axis.get_ticklocs()]

    def labels(self):
        return [t.get_text() for t in self.axis.get_ticklabels()]

    def nearest(self, number):
        """Give the label of the tick nearest to a number, or the number."""
        if self.categories:
            return str(self.categories.get(round(number), plain(number)))
        pairs = list(zip(self.axis.get_ticklocs(), self.labels()))
        pairs = [(t, label) for t, label in pairs if label]
        if not pairs:
            return str(plain(number))
        return min(pairs, key=lambda p: abs(p[0] - number))[1]


def unmasked(values):
    """Give the values without a mask, as a list."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def points(axes, series, budget):
    x_axis, y_axis = Axis(axes.xaxis), Axis(axes.yaxis)
    elements = []
    for label, xs, ys in series:
        budget.take(len(xs))
        elements.append({"label": label,
                         "points": [[x_axis.value(x), y_axis.value(y)] for x, y in zip(xs, ys)]})
    return {"elements": elements,
            "x_ticks": x_axis.ticks(), "x_tick_labels": x_axis.labels(), "x_scale": x_axis.scale,
            "y_ticks": y_axis.ticks(), "y_tick_labels": y_axis.labels(), "y_scale": y_axis.scale}


def lines(axes, budget):
    drawn = [line for line in axes.get_lines() if len(line.get_xdata(orig=False))]
    # A rule across the axes (axhline) is in the axes' own coordinates, and is no data.
    drawn = [line for line in drawn if line.get_transform() == axes.transData]
    if not drawn:
        return None
    series = [(name(line), unmasked(line.get_xdata(orig=False)), unmasked(line.get_ydata(orig=False)))
              for line in drawn]
    return {"type": "line", **points(axes, series, budget)}


def scatter(axes, budget):
    series = []
    for c in axes.collections:
        if type(c).__name__ == "PathCollection":
            offsets = unmasked(c.get_offsets())
            series.append((name(c), [o[0] for o in offsets], [o[1] for o in offsets]))
    return {"type": "scatter", **points(axes, series, budget)} if series else None


def bars(axes, budget):
    elements = []
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        budget.take(len(container.patches))
        across = getattr(container, "orientation", None) == "horizontal"
        along = Axis(axes.yaxis if across else axes.xaxis)
        for bar in container.patches:
            middle = bar.get_y() + bar.get_height() / 2 if across else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if across else bar.get_height()
            elements.append({"label": along.nearest(middle), "group": name(container),
                             "value": plain(value)})
    return {"type": "bar", "elements": elements} if elements else None


def pie(axes, budget):
    wedges = [p for p in axes.patches if type(p).__name__ == "Wedge"]
    if not wedges:
        return None
    budget.take(len(wedges))
    texts = [t.get_text() for t in axes.texts]
    step = max(1, len(texts) // len(wedges))  # with autopct each wedge has a second text
    elements = []
    for i, wedge in enumerate(wedges):
        label = name(wedge) or (texts[i * step] if i * step < len(texts) else "")
        elements.append({"label": label, "angle": plain(abs(wedge.theta2 - wedge.theta1)),
                         "radius": plain(wedge.r)})
    return {"type": "pie", "elements": elements}


def boxes(axes, budget):
    """Find the boxes of a boxplot. matplotlib keeps no record of them in the axes: a box is a closed
    outline of right angles (Line2D or PathPatch), and each has a median inside and two whiskers."""
    straight = [line for line in axes.get_lines() if line.get_transform() == axes.transData]
    outlines = [outline for outline in map(box_of, straight + list(axes.patches)) if outline]
    if not outlines:
        return None
    budget.take(len(outlines))
    found = []
    for across in (False, True):
        found = [box for outline in outlines if (box := read_box(axes, straight, outline, across))]
        if found:
            break
    return {"type": "box_and_whisker", "elements": found} if found else None


def box_of(artist):
    """Give a box's (left, right, bottom, top), or None if the artist is not the outline of one. A box
    with notches has 11 points. The notch may reach beyond the quartiles, which are the first and the
    sixth point's."""
    kind = type(artist).__name__
    if kind == "Line2D":
        xs, ys = unmasked(artist.get_xdata(orig=False)), unmasked(artist.get_ydata(orig=False))
    elif kind == "PathPatch":
        corners = unmasked(artist.get_path().vertices)
        xs, ys = [c[0] for c in corners], [c[1] for c in corners]
        if len(xs) in (6, 12):  # the last corner closes the path
            xs, ys = xs[:-1], ys[:-1]
    else:
        return None
    if len(xs) not in (5, 11) or (xs[0], ys[0]) != (xs[-1], ys[-1]):  # 11 with notches
        return None
    if len(xs) == 5 and (len(set(xs)) != 2 or len(set(ys)) != 2):
        return None
    if len(xs) == 5:
        return min(xs), max(xs), min(ys), max(ys)
    if ys[0] == ys[1]:  # the first side lies on a quartile, so the values run up
        return min(xs), max(xs), *sorted((ys[0], ys[5]))
    return *sorted((xs[0], xs[5])), min(ys), max(ys)


def read_box(axes, straight, outline, across):
    """Read one box. across is whether the values run along the x axis."""
    place = slice(2, 4) if across else slice(0, 2)
    value = slice(0, 2) if across else slice(2, 4)
    (low, high), (first, third) = outline[place], outline[value]
    middle, near = (low + high) / 2, (high - low) * 1e-6 + 1e-9
    median, ends, outliers = None, [], []
    for line in straight:
        at = unmasked(line.get_ydata(orig=False) if across else line.get_xdata(orig=False))
        values = unmasked(line.get_xdata(orig=False) if across else line.get_ydata(orig=False))
        if len(at) == 0 or not all(low - near <= a <= high + near for a in at):
            continue
        alone = line.get_linestyle() in ("None", "none", " ", "")
        if alone and line.get_marker() not in (None, "None", "none", " ", ""):
            if all(abs(a - middle) < near for a in at) and not all(first <= v <= third for v in values):
                outliers += [plain(v) for v in values]
        elif len(at) == 2 and values[0] == values[1] and first <= values[0] <= third:
            # The median spans the box; a cap can lie on the box's edge, and is shorter.
            if median is None or abs(at[1] - at[0]) > median[0]:
                median = (abs(at[1] - at[0]), values[0])
        elif len(at) == 2 and abs(at[0] - middle) < near and abs(at[1] - middle) < near:
            ends += values
    if median is None or not ends:
        return None
    along = Axis(axes.yaxis if across else axes.xaxis)
    return {"label": along.nearest(middle), "min": plain(min(ends)), "first_quartile": plain(first),
            "median": plain(median[1]), "third_quartile": plain(third), "max": plain(max(ends)),
            "outliers": outliers}


def chart(axes, budget):
    """Give the chart of one axes, None if it shows nothing."""
    found = None
    for read in (boxes, pie, bars, scatter_or_lines):
        found = read(axes, budget)
        if found:
            break
    if not found:
        if not axes.has_data():
            return None
        found = {"type": "unknown", "elements": []}
    found["title"] = text(axes.get_title())
    if found["type"] not in ("pie", "unknown"):
        for letter in "xy":
            label = getattr(axes, f"get_{letter}label")()
            found[f"{letter}_label"], found[f"{letter}_unit"] = text(label), unit(label)
    return found


def scatter_or_lines(axes, budget):
    return lines(axes, budget) or scatter(axes, budget)


def figure_chart(figure):
    """Give the chart of a figure, None if it has none or too much of it."""
    budget = Budget()
    try:
        charts = [c for c in (chart(axes, budget) for axes in figure.axes if not is_legend(axes)) if c]
    except TooMany:
        return None
    if len(charts) < 2:
        return charts[0] if charts else None
    title = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": text(title.get_text()) if title else None,
            "elements": charts}


def is_legend(axes):
    """Tell whether axes belong to others: a colour bar."""
    return getattr(axes, "_colorbar", None) is not None or axes.get_label() == "<colorbar>"


def frame_data(frame):
    """Give the columns of a table."""
    if frame.size > MOST_ELEMENTS:
        return None
    return {str(label): [plain(v) for v in frame.iloc[:, i].tolist()]
            for i, label in enumerate(frame.columns)}


def careful(make):
    """Make a function that gives None where the other one fails: a picture without data is better
    than an error in place of the picture."""

    def made(value):
        try:
            return make(value)
        except Exception:
            return None

    return made


# What reads a value of which class of which package.
READERS = {CHART: ("matplotlib", "Figure", careful(figure_chart)),
           DATA: ("pandas", "DataFrame", careful(frame_data))}


def form(mime, value):
    """Give one of our forms of a value, None if it has none."""
    package, name, make = READERS[mime]
    for kind in type(value).__mro__:
        if kind.__name__ == name and kind.__module__.split(".")[0] == package:
            return make(value)
    return None


def read(value):
    """Give our forms of a value, by MIME type, without IPython."""
    found = {mime: form(mime, value) for mime in READERS}
    return {mime: data for mime, data in found.items() if data is not None}


def install(display):
    """Teach IPython's display formatter our forms. They are not printers of a formatter, because
    matplotlib's backend removes everybody's printers of figures when it is chosen."""
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    for mime in READERS:
        display.formatters[mime] = type("Formatter", (BaseFormatter,), {
            "format_type": Unicode(mime), "_return_type": dict, "print_method": ObjectName("_repr_none_"),
            "__call__": lambda self, value, mime=mime: form(mime, value)})(parent=display)
