"""Sets up a fresh clone: the virtual environment, the packages, the jars of the Kafka broker that the tests start.

Rule: it uses the standard library only, and ends at once when there is nothing to do. If a machine can't be set up, it
prints one line that says what to do, and ends with exit status 1. Its syntax is old, so that an old Python can report
that it is too old.

    python3 tools/bootstrap.py            # what `make demo` needs
    python3 tools/bootstrap.py --packages # what `make lint` needs: no jars
    python3 tools/bootstrap.py --test     # also the older Sparks that are served, and the jars of an older broker
    python3 tools/bootstrap.py --soak     # that, the jars of the other brokers that are tested, and those of tables
    python3 tools/bootstrap.py --bench    # also the jars of Spark's own Kafka source, to measure against
    python3 tools/bootstrap.py --kafka 4.0.2    # also the jars of that one broker"""

import argparse
import contextlib
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
BUILD = os.path.join(ROOT, ".build")
LOG = os.path.join(BUILD, "setup.log")

EXTRAS = "spark,metrics,web,postgresql,notebooks,docs,test,dev"
UV = "uv>=0.9,<1"
UV_NAMES = {
    "cert": "SSL_CERT_FILE",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
}
"""uv's names for pip's settings."""
MINIMUM_PYTHON = (3, 10)
MINIMUM_JAVA = 17
KAFKA_VERSION = "4.3.1"
OLDER_KAFKA = "3.9.2"  # the last release before 4.0: `make test-all` has a broker of it, too
OTHER_KAFKAS = ("3.7.2", "4.0.2", "4.1.2", "4.2.1")  # for `make soak`; of 4.2.2 Maven has no kafka-tools
OLDEST_SPARK_WITH_START = "4.2.1"  # the oldest whose latestOffset() has the arguments start and limit
SPARK_WITHOUT_START = ("4.0.5", "4.1.4")  # older ones, whose latestOffset() has no arguments
READER = os.path.join(ROOT, "share_source", "executor", "native")


def kafka_jars(version):
    """(folder in .build, [(organisation, module, revision)], whether dependencies are fetched too)."""
    modules = [
        ("org.apache.kafka", "kafka_2.13", version),  # the server
        ("org.apache.kafka", "kafka-tools", version),  # its command line tools
    ]
    if version.startswith("3."):  # a broker that can't start logs nothing without these
        modules += [("ch.qos.reload4j", "reload4j", "1.2.25"), ("org.slf4j", "slf4j-reload4j", "1.7.36")]
    else:
        modules += [("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")]
    return "kafka-" + version, modules, True


# Without dependencies: their POMs name repositories other than Maven Central, and Spark has the rest.
BENCH_JARS = (
    "spark-kafka",
    [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ],
    False,
)

# For the oldest Spark: Delta has no release for a newer one yet. Spark has the other dependencies.
DELTA_JARS = (
    "delta-4.4.0",
    [
        ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
        ("io.delta", "delta-storage", "4.4.0"),
        ("io.delta", "delta-kernel-api", "4.4.0"),
        ("io.delta", "delta-kernel-defaults", "4.4.0"),
        ("io.delta", "delta-kernel-unitycatalog", "4.4.0"),
    ],
    False,
)

# For the newest Spark of which Iceberg has a release: SPARK_WITHOUT_START's last. One jar with all of its dependencies.
ICEBERG_JARS = ("iceberg-1.12.0", [("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")], False)


class CannotSetUp(Exception):
    """The machine can't be set up; the message is one line that says why, and what to do."""


def main():
    parser = argparse.ArgumentParser(description="set up this clone")
    parser.add_argument("--packages", action="store_true", help="install the packages alone")
    parser.add_argument("--test", action="store_true", help="also install the older Sparks, and an older broker")
    parser.add_argument("--soak", action="store_true", help="also fetch the other brokers, and more jars for Spark")
    parser.add_argument("--bench", action="store_true", help="also fetch Spark's own Kafka source for the benchmarks")
    parser.add_argument("--kafka", metavar="VERSION", help="also fetch the broker of that version")
    arguments = parser.parse_args()
    try:
        python, java = find_python(), find_java()
        with one_at_a_time("packages.lock"):
            install_packages(python)
            remove_copy_of_pyspark(os.path.join(VENV, "lib", "python3*", "site-packages"))
        if not arguments.packages:
            with one_at_a_time("downloads.lock"):
                download(java, arguments.test or arguments.soak, arguments.soak, arguments.bench, arguments.kafka)
    except CannotSetUp as error:
        print("sharegroup: {}".format(error), file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def one_at_a_time(name):
    """A second make waits here, and then finds everything done."""
    os.makedirs(BUILD, exist_ok=True)
    with open(os.path.join(BUILD, name), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def download(java, test, soak, bench, kafka):
    jars = [kafka_jars(version) for version in kafkas(test, soak, kafka)]
    jars += [DELTA_JARS, ICEBERG_JARS] * soak + [BENCH_JARS] * (soak or bench)
    older_sparks = ((OLDEST_SPARK_WITH_START,) + SPARK_WITHOUT_START) * test
    # Two at a time: jars wait for the network, and a pyspark for the processor. Ivy's cache has one writer.
    with ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(lambda: [fetch_jars(java, each) for each in jars])]
        begun += [threads.submit(install_spark, version) for version in older_sparks]
    for each in begun:
        each.result()


def kafkas(test, soak, kafka):
    """Returns the versions of the wanted brokers, each once."""
    if kafka and not re.match(r"\d+\.\d+\.\d+$", kafka):
        raise CannotSetUp("--kafka {}: name a release, as {}".format(kafka, OLDER_KAFKA))
    wanted = [KAFKA_VERSION] + [OLDER_KAFKA] * test + list(OTHER_KAFKAS) * soak
    return wanted if not kafka or kafka in wanted else wanted + [kafka]


def find_python():
    """Returns the Python for the environment: this one, or a newer one on the PATH if this one is too old."""
    if sys.version_info[:2] >= MINIMUM_PYTHON:
        return sys.executable
    for minor in range(14, MINIMUM_PYTHON[1] - 1, -1):
        name = "python3.{}".format(minor)
        path = shutil.which(name)
        if path and runs(path, "-c", ""):
            return path
    raise CannotSetUp(
        "Python {}.{} or newer is needed, this is {}.{}: install one, or name it with "
        "`make PYTHON=/path/to/python3`".format(*(MINIMUM_PYTHON + sys.version_info[:2]))
    )


def find_java():
    """Returns the java that Spark uses: that of JAVA_HOME if it is set, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = "install Java {} or newer and put `java` on the PATH, or point JAVA_HOME at it".format(MINIMUM_JAVA)
    if java is None:
        raise CannotSetUp("Java is missing: " + advice)
    try:
        answer = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise CannotSetUp("{} does not run: {}".format(java, advice)) from None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stdout.decode("utf-8", "replace"))
    version = int(found.group(2) if found.group(1) == "1" else found.group(1)) if found else 0
    if version < MINIMUM_JAVA:
        raise CannotSetUp("Java {} is too old ({}): {}".format(version, java, advice))
    return java


def install_packages(python):
    """Make .venv and install this clone into it, editable, with all extras; this also builds the compiled reader. The
    stamp file has a fingerprint of the packages."""
    stamp = os.path.join(VENV, ".sharegroup-stamp")
    wanted = packages_fingerprint()
    if os.path.exists(VENV_PYTHON) and read_text(stamp) == wanted:
        return
    if not runs(VENV_PYTHON):
        say("making .venv")
        run(
            [python, "-m", "venv", "--clear", VENV],
            python + " could not make a virtual environment: install its venv module (Debian: python3-venv)",
        )
    say("installing the packages into .venv (a minute or two the first time)")
    advice = "the Python packages could not be installed: check the network and try again"
    install(["--editable", ".[{}]".format(EXTRAS)], advice)
    write_text(stamp, wanted)
    if not glob.glob(os.path.join(READER, "_drain.*.so")):
        say("the compiled reader was not built (no C compiler, or no Python.h?): tasks read with Python")


def install(wanted, advice):
    """Install with uv, which takes a third of pip's time; where there is none, or it fails, with pip."""
    pip = [VENV_PYTHON, "-m", "pip", "install", "--retries", "2", "--timeout", "30"]
    try:
        if not runs(VENV_PYTHON, "-m", "uv", "--version"):
            run(pip + [UV], "uv could not be installed")
        run([VENV_PYTHON, "-m", "uv", "pip", "install", "--python", VENV_PYTHON] + wanted, "uv failed", **uv_settings())
    except CannotSetUp as error:
        say("{}: pip installs".format(error))
        run(pip + wanted, advice)


def uv_settings():
    """Returns the settings in pip's files and PIP_ variables under uv's names, since uv does not read pip's files."""
    listed = subprocess.run([VENV_PYTHON, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, check=False).stdout
    settings = {}
    for line in listed.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        key = UV_NAMES.get(name.rpartition(".")[2])
        if key and key not in os.environ:  # a PIP_ variable comes first, and counts
            separator = "," if key == "UV_FIND_LINKS" else " "
            settings.setdefault(key, separator.join(value.strip("'\"").replace("\\n", " ").split()))
    return settings


def install_spark(version):
    """Install another supported pyspark into a folder of its own. Tests put the folder first on the path."""
    target = os.path.join(BUILD, "pyspark-" + version)
    stamp = os.path.join(target, ".complete")
    if read_text(stamp) == version:
        return
    say("installing pyspark {} into .build".format(version))
    shutil.rmtree(target, ignore_errors=True)
    advice = "pyspark {} could not be installed: check the network and try again".format(version)
    install(["--no-deps", "--target", target, "pyspark==" + version], advice)
    remove_copy_of_pyspark(target)
    write_text(stamp, version)


def remove_copy_of_pyspark(packages):
    """Remove pyspark.zip, which has no byte code. Each Python process that Spark starts compiled pyspark from it: a
    quarter of the CPU time of a test with queries, and more than Spark's ten seconds on a busy machine. Spark puts the
    file first on their path; without it they import the installed pyspark."""
    for copy in glob.glob(os.path.join(packages, "pyspark", "python", "lib", "pyspark.zip")):
        os.remove(copy)


def packages_fingerprint():
    digest = hashlib.sha256()
    names = [os.path.join(ROOT, name) for name in ("setup.py", "pyproject.toml")]
    for path in names + sorted(glob.glob(os.path.join(READER, "*.[ch]"))):
        with open(path, "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()


def fetch_jars(java, wanted):
    """Fetch jars into .build with the Ivy among pyspark's jars, whose cache serves the next clone."""
    folder, modules, transitive = wanted
    target = os.path.join(BUILD, folder)
    stamp = os.path.join(target, ".complete")
    description = ivy_description(folder, modules, transitive)
    if read_text(stamp) == description:
        return
    say("fetching jars into .build/{}".format(folder))
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    description_file = os.path.join(BUILD, folder + ".ivy.xml")
    write_text(description_file, description)
    pattern = os.path.join(target, "[artifact]-[revision].[ext]")
    ivy = [java, "-cp", os.path.join(spark_jars(), "*"), "org.apache.ivy.Main"]
    ivy += ["-ivy", description_file, "-confs", "default", "-retrieve", pattern]
    ivy += ["-types", "jar", "bundle"]  # without bundle, eleven of Kafka's jars are missing
    advice = "jars could not be fetched from Maven Central: check the network and try again"
    run(ivy, advice)
    for _, module, revision in modules:
        if not os.path.exists(os.path.join(target, "{}-{}.jar".format(module, revision))):
            raise CannotSetUp("{} ({} is missing; log: {})".format(advice, module, os.path.relpath(LOG, os.getcwd())))
    write_text(stamp, description)


def ivy_description(folder, modules, transitive):
    line = '    <dependency org="{}" name="{}" rev="{}" conf="default" transitive="{}"/>'
    dependencies = "\n".join(line.format(org, name, rev, str(transitive).lower()) for org, name, rev in modules)
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="sharegroup" module="{}"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        "  <dependencies>\n{}\n  </dependencies>\n"
        "</ivy-module>\n"
    ).format(folder, dependencies)


def spark_jars():
    found = glob.glob(os.path.join(VENV, "lib", "python3*", "site-packages", "pyspark", "jars"))
    if not found:
        raise CannotSetUp("pyspark is not in .venv: run `make clean` and try again")
    return found[0]


def runs(python, *arguments):
    """Whether this Python exists and works. A shim or a moved environment may not work."""
    try:
        command = [python] + list(arguments or ["-m", "pip", "--version"])
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def run(command, advice, **settings):
    """Run a command with these environment variables, and its output in the log. A failure shows only the advice."""
    with open(LOG, "ab") as log:
        log.write("\n$ {}\n".format(" ".join(command)).encode("utf-8"))
        log.flush()
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=dict(os.environ, **settings)
            )
            failed = done.returncode != 0
        except OSError:
            failed = True
    if failed:
        raise CannotSetUp("{} (log: {})".format(advice, os.path.relpath(LOG, os.getcwd())))


def say(text):
    print("[{}] {}".format(time.strftime("%H:%M:%S"), text), flush=True)


def read_text(path):
    try:
        with open(path, encoding="utf-8") as source:
            return source.read()
    except OSError:
        return None


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as target:
        target.write(text)


if __name__ == "__main__":
    sys.exit(main())
