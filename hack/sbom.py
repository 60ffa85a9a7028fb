"""Reads an SBOM with OWASP's Python library and compares it with crates, "NAME VERSION" a line, on standard input."""

import json
import sys
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

path = Path(sys.argv[1])
text = path.read_text()
if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
    sys.exit(f"{path}: not CycloneDX 1.5: {error}")
bom = Bom.from_json(json.loads(text))
own = bom.metadata.component
found = {(one.name, one.version) for one in bom.components} | {(own.name, own.version)}
expect = {tuple(line.split()) for line in sys.stdin}
if missing := sorted(expect - found):
    sys.exit(f"{path}: crates of cargo tree are missing: {missing}")
# The writer resolves features together with those of the tests, so it can list an optional crate that is not built.
others = [f"{name} {version}" for name, version in sorted(found - expect)]
print(
    f"{path.name}: CycloneDX 1.5, {own.name} {own.version}, components: {len(bom.components)}, "
    f"not built: {', '.join(others) or 'none'}"
)
