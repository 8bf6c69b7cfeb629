"""Analyses the FAA's wildlife strike reports: which birds, where, when, how dear.

Runs inside the sandbox with nothing but Python's standard library. Writes
report.txt and strikes.svg beside itself and prints as it goes.
"""
import csv
import sys
import time
from collections import Counter, defaultdict
from html import escape

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def say(text):
    print(text, flush=True)


def number(text):
    try:
        return float(text)
    except ValueError:
        return 0.0


def read(path):
    with open(path, newline="") as f:
        for i, row in enumerate(csv.DictReader(f), 1):
            if i % 2500 == 0:
                say(f"  read {i} reports")
                time.sleep(0.1)  # slow enough to see that output streams
            yield row


def main():
    months, species, phases = Counter(), Counter(), Counter()
    cost, speed = Counter(), defaultdict(list)
    rows = damaged = 0
    for row in read("birdstrikes.csv"):
        rows += 1
        months[int(row["Flight Date"][5:7]) - 1] += 1
        if not row["Wildlife Species"].startswith("Unknown"):
            species[row["Wildlife Species"]] += 1
        phases[row["Phase of flight"] or "unknown"] += 1
        cost[row["Wildlife Species"]] += number(row["Cost Total $"])
        damaged += row["Effect Amount of damage"] not in ("", "None")
        if number(row["Speed IAS in knots"]):
            speed[row["Phase of flight"]].append(number(row["Speed IAS in knots"]))
    lines = [f"{rows} reports, {damaged} with damage ({100 * damaged / rows:.1f} %)",
             f"total cost: {sum(cost.values()):,.0f} dollars", "", "most often hit"]
    lines += [f"  {n:5d}  {name}" for name, n in species.most_common(8)]
    lines += ["", "dearest"]
    lines += [f"  {c:12,.0f} dollars  {name}" for name, c in cost.most_common(5)]
    lines += ["", "phase of flight"]
    for name, n in phases.most_common(6):
        speeds = sorted(speed.get(name, [0]))
        lines.append(f"  {n:5d}  {name:14s} median {speeds[len(speeds) // 2]:.0f} knots")
    report = "\n".join(lines) + "\n"
    with open("report.txt", "w") as f:
        f.write(report)
    with open("strikes.svg", "w") as f:
        f.write(plot([months[i] for i in range(12)]))
    say("  wrote report.txt and strikes.svg")


def plot(counts):
    """A bar chart of strikes by month, as SVG."""
    top, height, width = max(counts), 240, 40
    bars = []
    for i, n in enumerate(counts):
        h = height * n / top
        x = 50 + i * (width + 8)
        bars.append(f'<rect x="{x}" y="{280 - h:.1f}" width="{width}" height="{h:.1f}" fill="#3b6ea5"/>'
                    f'<text x="{x + width / 2}" y="{272 - h:.1f}" text-anchor="middle">{n}</text>'
                    f'<text x="{x + width / 2}" y="298" text-anchor="middle">{escape(MONTHS[i])}</text>')
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="640" height="320" font-family="sans-serif" font-size="12">'
            '<rect width="640" height="320" fill="white"/>'
            '<text x="320" y="20" text-anchor="middle" font-size="15">Wildlife strikes by month</text>'
            + "".join(bars) + "</svg>\n")


if __name__ == "__main__":
    sys.exit(main())
