"""The lists of what is in the programs, against the official schema of CycloneDX 1.5.

    python sbom.py FILE.cdx.json …

Prints a line a check. Needs `cyclonedx-python-lib` with its validator.
"""

import json
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# What every program is linked with, whatever its features are.
EVERYWHERE = {"lgp-inference", "lgp-hal", "tokio", "rustls", "ring", "rust-std"}


def complaints(path):
    text = path.read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_5)
    if wrong := validator.validate_str(text):
        yield str(wrong)[:500]
    names = {component["name"] for component in json.loads(text)["components"]}
    if missing := EVERYWHERE - names:
        yield f"{missing} are not in it"
    # Neither build scripts nor tests are linked.
    if strange := names & {"cc", "insta", "criterion", "xtask", "serde_derive"}:
        yield f"{strange} are in it"
    if not validator.validate_str(text.replace('"application"', '"aplication"')):
        yield "a wrong type is not noticed"


def main(files):
    good = True
    for path in map(Path, files):
        said = list(complaints(path))
        for one in said:
            print(f"failed: {path.name}: {one}")
        if not said:
            print(f"ok {path.name}")
        good &= not said
    return good


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
