"""The specification of a query that a test sends to a Spark program: its source, its work and its sink. It is plain
data, sent as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class QuerySpec:
    """One start of a query. The same name and directory again are a restart from the same checkpoint."""

    name: str
    directory: str
    """checkpoints/NAME, out/query=NAME, held/NAME, seen/NAME and events/NAME lie in it."""

    options: dict[str, str] = field(default_factory=dict)
    source: str = "sharegroup"
    trigger: str = "default"
    """``default``, ``available_now``, ``once``, or a processing time such as ``1 second``."""

    sink: str = "replace"
    """``replace``: what a (query, batch id) wrote before is replaced. ``append``: it is added to. ``stop``: as replace,
    and the query stops itself inside foreachBatch. ``acknowledge+replace`` and others: what is done in foreachBatch, in
    this order (tests.support.query_sinks). Other names are Spark's formats."""

    sink_options: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    """SQL expressions by column, applied in order: what a row sends to its sink. With them the record stays as it came;
    ``text`` is the value after the work, ``at`` the time of the work (ms); in foreachBatch ``batch`` is the batch's
    number."""

    in_order: bool = False
    """What follows a released row is deferred (sharegroup.in_order), in foreachBatch."""

    where: str = ""
    """Selects the rows for the sink from those with ``columns``."""

    drop: tuple[str, ...] = ()
    """Columns that are dropped before the sink."""

    shape: str = "plain"
    """``self_union`` and ``self_join`` use the source's DataFrame twice."""

    frame: str = ""
    """Queries of one program that name the same frame run on one DataFrame."""

    poison: tuple[str, ...] = ()
    """The work raises on these values."""

    hold: tuple[str, ...] = ()
    """The work stops at these values until ``release()``, so that a test finds a batch in its middle."""

    hold_first: tuple[str, ...] = ()
    """As ``hold``, but only the first attempt of a task stops; ``attempts`` says which attempts came to a value."""

    hint: str = ""
    """The text of the progress signal (sharegroup.progress) that the work sends each time it begins on values; empty:
    none."""

    away: str = ""
    """The work raises while a file of this path is there, as if a service that it needs were away."""

    kept: bool = False
    """The program keeps the query running (sharegroup.keep_running); each start is an event ``started``."""

    completes: bool = False
    """The program completes the last batch when the query has ended (sharegroup.complete_run)."""

    checkpoint: str = ""
    """The folder of the checkpoint; empty: its usual place."""

    @classmethod
    def from_json(cls, fields: dict[str, object]) -> QuerySpec:
        lists = {key: tuple(fields[key]) for key in ("drop", "poison", "hold", "hold_first")}  # type: ignore[call-overload]
        return cls(**{**fields, **lists})  # type: ignore[arg-type]

    @property
    def checkpoint_path(self) -> Path:
        return Path(self.checkpoint) if self.checkpoint else Path(self.directory, "checkpoints", self.name)

    @property
    def out_path(self) -> Path:
        return Path(self.directory, "out", f"query={self.name}")

    @property
    def seen_path(self) -> Path:
        """A file for each Arrow batch that the work has seen: ShareJob.seen reads them."""
        return Path(self.directory, "seen", self.name)

    @property
    def held_path(self) -> Path:
        """One file for each value that the work stopped at, named VALUE, with the worker's and its JVM's process id."""
        return Path(self.directory, "held", self.name)

    def held(self) -> dict[str, tuple[int, int]]:
        """The values that the work stopped at -> (the worker, the JVM it works for)."""
        found = {}
        for path in self.held_path.glob("*.at"):
            worker, jvm = path.read_text().split()
            found[path.stem] = (int(worker), int(jvm))
        return found

    def attempts(self, value: str) -> set[int]:
        """The attempts of a task that came to this value of ``hold_first``."""
        return {int(path.suffix[1:]) for path in self.held_path.glob(f"{value}.attempt.*")}

    def release(self) -> None:
        """Let the work go on, now and in later starts."""
        self.held_path.mkdir(parents=True, exist_ok=True)
        (self.held_path / "released").touch()
