"""How the Java processes of the tests run. Most live for less than a minute, half of which goes to classes: loading and
compiling them.

The rule: with the first compiler alone, and with the classes from an archive that the JVM made when it ended once
(`python -m tests.support.class_archives`). Without an archive, or with one of another Java or other jars, the JVM loads
the classes from the jars, as ever.
"""

from __future__ import annotations

from tests.support.imports import ROOT

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_QUIET = "-Xlog:disable"
"""Java logs nothing about a class archive that does not fit: a test's output need not have it."""

SPARK_CLASSES = ROOT / ".build" / "spark.jsa"
BROKER_CLASSES = ROOT / ".build" / "broker.jsa"

BROKER_OPTIONS = (*SHORT_LIVED, _QUIET, f"-XX:SharedArchiveFile={BROKER_CLASSES}")
SPARK_OPTIONS = (*SHORT_LIVED, _QUIET, f"-XX:SharedArchiveFile={SPARK_CLASSES}")

SPARK_ENVIRONMENT = {"JDK_JAVA_OPTIONS": " ".join(SPARK_OPTIONS)}
"""For a user's program, which starts Spark with its own settings. Each Java that it starts prints them to stderr."""
