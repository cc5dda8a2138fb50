"""Renders the chart: the golden files of the tests, and deploy/kustomize/base. `make helm` runs it.

    .venv/bin/python deploy/helm/render.py          # writes what differs

It needs Helm (deploy/local/helm.py). The settings in values.schema.json are written without it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import SecretStr

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # for `deploy`, when this file runs as a script

from deploy.local import helm  # noqa: E402
from streamproc.settings import Settings  # noqa: E402

CHART: Final = ROOT / "deploy" / "helm" / "streamproc"
SCHEMA: Final = CHART / "values.schema.json"
GOLDEN: Final = ROOT / "tests" / "deploy" / "chart"
BASE: Final = ROOT / "deploy" / "kustomize" / "base"
BASE_VALUES: Final = GOLDEN / "default.values.yaml"
KUBERNETES: Final = "1.31.0"  # that the templates are rendered for
# Settings that the chart derives from other values.
DERIVED: Final = frozenset({
    "datadir", "instance", "metrics", "notify_file", "policy", "sasl_token_file", "shadow", "ssl_cafile",
    "ssl_certfile", "ssl_keyfile", "status_file", "store",
})  # fmt: skip


def main() -> int:
    write(SCHEMA, schema())
    path = helm.find()
    if path is None:
        helm.say(helm.MISSING)
        return 1
    for values in sorted(GOLDEN.glob("*.values.yaml")):
        write(golden_file(values), golden(path, values))
    made = base(golden(path, BASE_VALUES))
    for stale in set(BASE.glob("*.yaml")) - set(made):
        stale.unlink()
    for file, text in made.items():
        write(file, text)
    return 0


def write(path: Path, text: str) -> None:
    """Write a file that differs, and say so."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


def schema() -> str:
    """Return values.schema.json with the settings of `Settings`."""
    text: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    text["properties"]["settings"] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["brokers", "partitions", "replication_factor", "security_protocol", "topic_prefix"],
        "properties": settings(),
    }
    return json.dumps(text, indent=2, ensure_ascii=False) + "\n"


def settings() -> dict[str, Any]:
    """Return the JSON Schema of each setting that `settings` may have: no secrets, and nothing that the chart sets."""
    kept = ("type", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "description")
    found = Settings.model_json_schema()["properties"]
    return {
        name: {key: found[name][key] for key in kept if key in found[name]}
        for name, field in Settings.model_fields.items()
        if field.annotation is not SecretStr and name not in DERIVED
    }


def chart_digest(values: Path) -> str:
    """Return the SHA-256 of all that a golden file is made from: it is stale if this differs. (The schema renders
    nothing.)"""
    digest = hashlib.sha256()
    files = sorted(path for path in CHART.rglob("*") if path.is_file() and path != SCHEMA)
    for path in (*files, values):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def golden_file(values: Path) -> Path:
    """Return the file of the manifests that these values give."""
    return values.with_name(values.name.replace(".values.yaml", ".yaml"))


def golden(path: str, values: Path) -> str:
    """Return the manifests that these values give, below a line with their digest. Raises `CalledProcessError`."""
    rendered = template(path, "--values", str(values)).stdout
    manifests = [one for one in yaml.safe_load_all(rendered) if one]
    manifests.sort(key=lambda one: (component(one), one["kind"]))
    head = f"# Made by `make helm` from deploy/helm/streamproc and {values.name}: {chart_digest(values)}\n"
    return head + dump(manifests)


def template(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `helm template` on the chart. Raises `CalledProcessError` with Helm's words in `stderr`."""
    command = [path, "template", "streamproc", str(CHART), "--namespace", "streamproc", "--kube-version", KUBERNETES]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)


def component(manifest: dict[str, Any]) -> str:
    """Return the part of streamproc that an object belongs to."""
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def base(rendered: str) -> dict[Path, str]:
    """Return the files of the kustomize base: the chart's objects without what only Helm reads."""
    files = defaultdict(list)
    for manifest in yaml.safe_load_all(rendered):
        for metadata in _metadata_of(manifest):
            for key in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
                metadata.get("labels", {}).pop(key, None)
            annotations = metadata.get("annotations", {})
            for key in [key for key in annotations if key.startswith("helm.sh/")]:
                del annotations[key]
            if not annotations:
                metadata.pop("annotations", None)
        files[f"{component(manifest)}.yaml"].append(manifest)
    head = rendered.partition("\n")[0] + "\n"
    index = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(files)}
    texts = {name: dump(manifests) for name, manifests in files.items()} | {"kustomization.yaml": dump([index])}
    return {BASE / name: head + text for name, text in texts.items()}


def _metadata_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    pod = manifest.get("spec", {}).get("template", {}).get("metadata")
    return [manifest["metadata"], *([pod] if pod else [])]


def dump(manifests: list[dict[str, Any]]) -> str:
    """Return the objects as YAML."""
    return str(yaml.safe_dump_all(manifests, sort_keys=True, width=1_000, explicit_start=True))


if __name__ == "__main__":
    sys.exit(main())
