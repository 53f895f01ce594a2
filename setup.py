"""The package `sharegroup`: what is in it, what it needs, and why it needs it. Tool settings are in pyproject.toml."""

import os
import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup

README = Path(__file__).parent / "README.md"
REPOSITORY = ""
"""The address of the public repository, without a slash at the end. Empty: it has none yet."""


def compiled_reader() -> list[Extension]:
    """The compiled read path. It is optional: where it can't be built, the install succeeds and tasks read with Python,
    unless SHAREGROUP_REQUIRE_NATIVE=1 says otherwise. It needs a C compiler and Python's headers only, since it finds
    librdkafka in confluent_kafka at run time; one build serves all Pythons from 3.10 on."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return []  # it relies on the GIL, and these Pythons have no limited API yet
    folder = "share_source/executor/native"
    return [
        Extension(
            "share_source.executor.native._drain",
            [f"{folder}/drain.c"],
            depends=[f"{folder}/{name}.h" for name in ("arrow_builder", "librdkafka", "message")],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            extra_compile_args=["-O2", "-fvisibility=hidden", "-Wall", "-Wextra"],
            libraries=["pthread", "dl"],
            py_limited_api=True,
            optional=os.environ.get("SHAREGROUP_REQUIRE_NATIVE") != "1",
        )
    ]


def long_description() -> str:
    """README.md as a package index shows it, where a link to a file of the repository leads nowhere: with REPOSITORY
    such a link is absolute, without it only its text is left."""
    if not README.exists():
        return ""
    links = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)]*)\)")
    return links.sub(lambda found: _link(*found.groups()), README.read_text(encoding="utf-8"))


def _link(mark: str, text: str, target: str) -> str:
    if not REPOSITORY:
        return text
    page = f"README.md{target}" if target.startswith("#") else target
    return f"{mark}[{text}]({REPOSITORY}/{'raw' if mark else 'blob'}/main/{page})"


def project_urls() -> dict[str, str]:
    """The links beside the long description."""
    pages = {
        "Source": "",
        "Documentation": "/tree/main/docs",
        "Changelog": "/blob/main/CHANGELOG.md",
        "Issues": "/issues",
    }
    return {name: REPOSITORY + page for name, page in pages.items()} if REPOSITORY else {}


# pyspark is not here on purpose: a cluster brings its own, and pip must not put a second one beside it.
REQUIREMENTS = [
    "confluent-kafka>=2.16.1,<3",  # reads, watermarks and topic ids; 2.16.1 is the first with the ShareConsumer we compare with
    "pyarrow>=17",  # Flight carries the coordinator's protocol; record batches go to Spark as they are
    "numpy>=1.23",  # a sink's runs are joined and compared as columns; pyarrow hands them over without a copy
    "msgspec>=0.18",  # the protocol's messages and the stored records, typed and fast to decode
    "sortedcontainers>=2.4",  # the ordered runs of a share partition, the lock deadlines
    "google-re2>=1.1",  # subscribePattern: Python's re takes a time without bound for some patterns, and holds up all threads
    "tenacity>=8.2",  # one way to retry, with limits, for the client and for what brokers show later
    "platformdirs>=4",  # where the endpoint file and the state lie when nobody says where
    "filelock>=3.13",  # one owner at a time for a state file; one starter at a time for the coordinator
    "click>=8.2",  # the command line: its help, its options, its mistakes in one line
    "javaproperties>=0.8",  # conf/*.properties, read as Java reads them
    "rich>=13",  # the tables and the progress of the demo and the benchmarks
]

setup(
    name="sharegroup",
    version="0.1.0",
    description="Queue semantics for Spark Structured Streaming: Kafka share groups (KIP-932) as a streaming source",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    project_urls=project_urls(),
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(
        include=[
            "coordinator",
            "coordinator.*",
            "share_consumer",
            "share_consumer.*",
            "share_source",
            "share_source.*",
            "share_sink",
            "share_sink.*",
            "share_spark",
            "pyspark_sharegroup",
            "sharegroup",
            "sharegroup.*",
        ]
    ),
    # Each package tells type checkers that its annotations are to be used (PEP 561).
    ext_modules=compiled_reader(),
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if compiled_reader() else {},
    package_data={
        "": ["py.typed"],
        "share_source.executor.native": ["_drain.pyi"],
        "sharegroup.demo": ["*_program.txt"],
        "sharegroup.web": ["templates/*", "static/*"],
    },
    # The defaults of all keys: below the environment's own folder, as sys.prefix names it.
    data_files=[("share/sharegroup/conf", ["conf/coordinator.properties", "conf/group.properties"])],
    # Said aloud, so that an editable install is one path entry and not an import hook: Spark finds `pyspark_sharegroup`
    # with pkgutil.iter_modules, which sees paths only.
    package_dir={"": "."},
    # Without requirements pip's last line on an older Python is about Python, not about the first package that needs it.
    install_requires=REQUIREMENTS if sys.version_info >= (3, 10) else [],
    entry_points={"console_scripts": ["sharegroup = sharegroup.__main__:main"]},
    extras_require={
        "spark": [
            "pyspark>=4.0,<4.4",  # 4.0 brought Python data sources, 4.3 is the newest that was tried; pip takes 4.2 on Python 3.10
        ],
        "metrics": [
            "prometheus-client>=0.20",  # the counters and the endpoint that Prometheus scrapes, of who watches coordinators
        ],
        "web": [
            "starlette>=1.0",  # routes, forms' middleware and event streams of sharegroup web, without a framework's magic
            "uvicorn>=0.30",  # serves it, with TLS and limits
            "jinja2>=3.1",  # its templates, which escape every value
        ],
        "postgresql": [
            "psycopg[binary]>=3.1",  # merge_once writes a table in PostgreSQL from the driver; its binary has libpq in it
        ],
        "docs": [
            "mkdocs-material>=9.5",  # the docs as a site: make docs
        ],
        "notebooks": [
            "matplotlib>=3.8",  # their pictures
            "ipykernel>=6.29",  # the process in which Jupyter runs a notebook's cells
            "nbclient>=0.10",  # runs them from top to bottom without a browser: make notebooks, and the tests
            "nbformat>=5.10",  # reads and writes the files
            "pandas>=2.2,<3",  # tables of a view, and mapInPandas; Spark warns about pandas 3
        ],
        "test": [
            "pytest>=8.2",
            "pytest-timeout>=2.3",  # a test that hangs fails by itself, with every thread's stack
            "pytest-xdist>=3.6,<4",  # most tests wait for brokers and Spark: several workers halve the time; its scheduler is extended
            "pytest-rerunfailures>=16.3",  # a wait that is not over in time is tried once more, and named
            "hypothesis>=6.100",  # the properties of the runs
            "psutil>=5.9",  # finds, kills and measures the processes that a test started
            "trustme>=1.1",  # certificates for the TLS tests, made anew in each run
            "cryptography>=42",  # keys in the form that Java reads, and signed OAuth tokens, for the tests of secured brokers; trustme brings it
            "kubernetes-validate>=1.29",  # deploy/kubernetes against Kubernetes' own schemas, which it has in it
            "pyyaml>=6",  # reads that manifest, and the bundle
            "jsonschema>=4.18",  # the fields of the Databricks bundle; nbformat brings it as well
            "pandas>=2.2,<3",  # Spark warns about pandas 3, and warnings are errors here
            "httpx2>=2",  # starlette's own client, with which the tests of the page ask it
            "pyspark[connect]>=4.2,<4.4",  # what a client of Spark Connect needs: grpcio and protobuf
            "playwright>=1.50",  # drives Debian's Chromium in the tests of the page
            "axe-playwright-python>=0.1.4",  # has axe-core, which finds in a page what keeps people out
        ],
        "dev": [
            "ruff>=0.5",
            "mypy>=1.10",
            "pytest-cov>=5",
        ],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: System :: Distributed Computing",
    ],
)
