#!/bin/bash
# A bootstrap action of Amazon EMR: installs sharegroup into /opt/sharegroup of this node. Its argument: s3://.../NAME.whl
set -euo pipefail
wheel=$(mktemp -d)/$(basename "$1")
aws s3 cp "$1" "$wheel"
sudo python3.11 -m venv /opt/sharegroup
sudo /opt/sharegroup/bin/pip install --quiet "$wheel"
