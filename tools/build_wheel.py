"""Builds the wheel with the compiled reader for one platform, and checks its tag with auditwheel.

Rule: the wheel is built from the sdist, so both are complete, and it needs no newer libc than its tag says. `zig cc`
compiles against that libc; it comes from PyPI, as auditwheel does, into an environment of its own in build/.

    python tools/build_wheel.py                         # dist/sharegroup-*.tar.gz and the wheel for Linux on x86_64
    python tools/build_wheel.py --target aarch64-linux-gnu.2.17 --platform manylinux2014_aarch64"""

import argparse
import os
import shutil
import subprocess
import sys
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOLS = os.path.join(ROOT, "build", "wheel-tools")
DIST = os.path.join(ROOT, "dist")
# Pinned, so that the same sources give the same wheel.
NEEDED = ["setuptools==80.9.0", "wheel==0.45.1", "ziglang==0.13.0.post1", "auditwheel==6.4.2"]


def main():
    parser = argparse.ArgumentParser(description="build the sdist and a wheel with the compiled reader")
    parser.add_argument("--target", default="x86_64-linux-gnu.2.17", help="zig's name of the platform, with its libc")
    parser.add_argument("--platform", default="manylinux2014_x86_64", help="the platform in the wheel's name")
    given = parser.parse_args()
    python = tools()
    shutil.rmtree(DIST, ignore_errors=True)
    run([python, "setup.py", "-q", "sdist", "-d", DIST], cwd=ROOT)
    (sdist,) = made(".tar.gz")
    build(python, sdist, given.target)
    (built,) = made(".whl")
    run([python, "-m", "wheel", "tags", "--remove", "--platform-tag", given.platform, built])
    (wheel,) = made(".whl")
    run([python, "-m", "auditwheel", "show", wheel])
    print(sdist, wheel, sep="\n")


def tools():
    """Returns the Python of the environment with the tools."""
    python = os.path.join(TOOLS, "bin", "python")
    if not os.path.exists(python):
        venv.create(TOOLS, with_pip=True)
    run([python, "-m", "pip", "install", "-q"] + NEEDED)
    return python


def build(python, sdist, target):
    """Build the wheel, whose compiled reader is for the target."""
    zig = "{} -m ziglang cc -target {}".format(python, target)
    environment = dict(os.environ, CC=zig, LDSHARED=zig + " -shared", SHAREGROUP_REQUIRE_NATIVE="1")
    run([python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", DIST, sdist], env=environment)


def made(ending):
    return [os.path.join(DIST, name) for name in os.listdir(DIST) if name.endswith(ending)]


def run(command, **options):
    subprocess.run(command, check=True, **options)


if __name__ == "__main__":
    sys.exit(main())
