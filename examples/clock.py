#!/usr/bin/env python3
"""What time it is anywhere: commands that only read, for people, scripts and models.

    python3 examples/clock.py demo      walk through it
    python3 examples/clock.py --help
    CLOCK_FROM=click python3 examples/clock.py now      the same commands from a click group, where click is installed

The zones are those of the system's time zone database, or of the package tzdata; without either there is only UTC.
"""
from __future__ import annotations

import os
import sys

# knaif.py stands one folder up. A real project, with knaif.py beside it, needs no such line.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from email.utils import format_datetime
from typing import Annotated, Any, Literal, Union
from zoneinfo import ZoneInfo, available_timezones

import knaif as nk

REGIONS = ("Africa", "America", "Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")

# Old names of the database, like Japan or EST5EDT, are left out: each of their places has one in a region.
ZONES = ["UTC"] + sorted(name for name in available_timezones() if name.split("/")[0] in REGIONS)

UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}

Zone = Annotated[str, nk.Arg(choices=ZONES, help="a time zone by the name of its city")]
Moment = Annotated[
    Union[datetime, date, time, int], nk.Arg(help="a date, a time or both in ISO 8601, or seconds since 1970")
]
Form = Annotated[
    Literal["iso", "unix", "rfc2822", "human"],
    nk.Arg(help="iso (8601), unix (epoch seconds, epoch, timestamp), rfc2822 (mail, email), human (readable, words)"),
]
DayAlone = Annotated[
    bool, nk.Arg(help="without the time (the date, current date, today's date, what date, what day, which day)")
]


@dataclass
class Reading:
    """One moment as a clock on the wall of some place shows it."""

    value: str | int
    tz: str


app = nk.App(
    "clock", version="1.0.0", expose=("cli", "agent", "mcp"),
    commands=[nk.ask_command()],
)


def spell(moment: datetime, fmt: str, date_only: bool = False) -> str | int:
    """Write a moment in one of the forms."""
    if fmt == "unix":
        return int(moment.timestamp())
    if fmt == "rfc2822":
        return format_datetime(moment)
    if fmt == "human":
        return f"{moment:%A} {moment.day} {moment:%B %Y}" + ("" if date_only else f"{moment:, %H:%M %Z}")
    return moment.date().isoformat() if date_only else moment.isoformat(timespec="seconds")


def locate(moment: datetime | date | time | int, tz: str) -> datetime:
    """Return the moment that a clock in that zone shows; a time alone is one of today, a date its midnight."""
    zone = ZoneInfo(tz)
    try:
        if isinstance(moment, int):
            return datetime.fromtimestamp(moment, timezone.utc)
        if isinstance(moment, time):
            moment = datetime.combine(datetime.now(zone).date(), moment)
        elif not isinstance(moment, datetime):
            moment = datetime.combine(moment, time())
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    except (OSError, OverflowError, ValueError):
        raise nk.Error("BAD_REQUEST", f"{moment} is beyond what a calendar holds") from None


# Commands


@app.command(readonly=True, keywords=["time", "date", "clock", "today", "current"])
def now(tz: Zone = "UTC", fmt: Form = "iso", date_only: DayAlone = False) -> Reading:
    """Tell what time it is in a zone."""
    return Reading(spell(datetime.now(ZoneInfo(tz)), fmt, date_only), tz)


@app.command(readonly=True, keywords=["translate", "change", "express"])
def convert(value: Moment, to_tz: Zone, from_tz: Zone = "UTC", fmt: Form = "iso") -> Reading:
    """Convert a time from one zone to another."""
    try:
        return Reading(spell(locate(value, from_tz).astimezone(ZoneInfo(to_tz)), fmt), to_tz)
    except OverflowError:
        raise nk.Error("BAD_REQUEST", f"{value} is beyond what a calendar holds") from None


@app.command(readonly=True, keywords=["difference", "between", "since", "until", "elapsed", "long", "many"])
def diff(start: Moment, end: Moment, unit: Literal["seconds", "minutes", "hours", "days"] = "days") -> float:
    """Count the time that passes between two moments."""
    if (type(start) is time) != (type(end) is time):
        raise nk.Error("BAD_REQUEST", "a time of day can only be compared with another one; give both with their dates")
    return (locate(end, "UTC") - locate(start, "UTC")).total_seconds() / UNITS[unit]


@app.command(readonly=True, keywords=["timezones", "list", "find", "search"])
def zones(query: Annotated[str, nk.Arg(max=100, help="a part of the name: a region or a city")] = "") -> list[str]:
    """List the time zones whose name contains some text."""
    wanted = query.casefold().replace(" ", "_")
    return [name for name in ZONES if wanted in name.casefold()]


@app.native
def demo() -> None:
    """Walk through the commands; the clock reads, so there is nothing to clean up."""
    import shlex
    import subprocess

    lines = [
        "now --fmt human",
        "now --tz Asia/Tokyo --date-only --json",
        "convert 2026-06-20T15:00 Asia/Tokyo --from-tz Europe/London",
        "convert 1750000000 Europe/Paris --fmt human",
        "diff 2026-01-01 2026-05-04",
        "diff 09:00 17:30 --unit hours",
        "zones new_york",
        "now --tz Mars/Olympus",
        "diff 09:00 2026-05-04",
        'ask "what time is it in Tokyo" --quiet --json',
        'ask "how many days from 2026-01-01 to 2026-05-04" --json',
        'ask "delete every time zone" --json',
    ]
    for line in lines:
        print(f"$ clock {line}", flush=True)
        run = subprocess.run([sys.executable, os.path.abspath(__file__)] + shlex.split(line), stdin=subprocess.DEVNULL)
        print(f"(exit code {run.returncode})" if run.returncode else "", flush=True)


# The same commands, for somebody who has them in click already


def click_group() -> Any:
    """Return the clock as a click group. Nothing in it knows of knaif; what its functions return becomes the result."""
    import click

    zone = click.Choice(ZONES)
    form = click.Choice(["iso", "unix", "rfc2822", "human"])
    moment = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])

    @click.group()
    def clock() -> None:
        """Tell what time it is anywhere."""

    @clock.command("now")
    @click.option("--tz", type=zone, default="UTC", help="a time zone by the name of its city")
    @click.option("--fmt", type=form, default="iso", help="how the time is written")
    @click.option("--date-only", is_flag=True, help="without the time")
    def click_now(tz: str, fmt: str, date_only: bool) -> Reading:
        """Tell what time it is in a zone."""
        return now(tz, fmt, date_only)

    @clock.command("convert")
    @click.argument("value", type=moment)
    @click.argument("to_tz", type=zone)
    @click.option("--from-tz", type=zone, default="UTC", help="the zone that the time is given in")
    @click.option("--fmt", type=form, default="iso", help="how the time is written")
    def click_convert(value: datetime, to_tz: str, from_tz: str, fmt: str) -> Reading:
        """Convert a time from one zone to another."""
        return convert(value, to_tz, from_tz, fmt)

    @clock.command("diff")
    @click.argument("start", type=moment)
    @click.argument("end", type=moment)
    @click.option("--unit", type=click.Choice(list(UNITS)), default="days")
    def click_diff(start: datetime, end: datetime, unit: str) -> float:
        """Count the time that passes between two moments."""
        return diff(start, end, unit)

    @clock.command("zones")
    @click.argument("query", default="")
    def click_zones(query: str) -> list[str]:
        """List the time zones whose name contains some text."""
        return zones(query)

    return clock


if os.environ.get("CLOCK_FROM") == "click":
    more = {name: {"readonly": True, "keywords": words} for name, words in {
        "now": ["time", "date", "clock", "today", "current"], "convert": ["translate", "change", "express"],
        "diff": ["difference", "between", "since", "until"], "zones": ["timezones", "list", "find", "search"],
    }.items()}
    app = nk.App(
        "clock", version="1.0.0", expose=("cli", "agent", "mcp"),
        commands=[nk.ask_command(), *nk.from_click(click_group(), options=more)],
    )

if __name__ == "__main__":
    app.main()
