"""The manifests that the chart renders, as the golden files have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parent / "chart"
VALUES = sorted(FOLDER.glob("*.values.yaml"))
WORKLOADS = ("StatefulSet", "Deployment", "Job")

Object = dict[str, Any]


class Manifest(NamedTuple):
    """One object of a golden file."""

    golden: str
    content: Object

    def __str__(self) -> str:
        return f"{self.golden}-{self.kind}-{self.component}"

    @property
    def kind(self) -> str:
        return str(self.content["kind"])

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def component(self) -> str:
        return str(self.content["metadata"]["labels"]["app.kubernetes.io/component"])

    @property
    def is_hook(self) -> bool:
        return "helm.sh/hook" in self.content["metadata"].get("annotations", {})

    @property
    def spec(self) -> Object:
        spec: Object = self.content["spec"]
        return spec

    @property
    def pod(self) -> Object:
        pod: Object = self.spec["template"]["spec"]
        return pod

    @property
    def container(self) -> Object:
        [container] = self.pod["containers"]
        assert isinstance(container, dict)
        return container

    @property
    def env(self) -> dict[str, Object]:
        return {one["name"]: one for one in self.container["env"]}


def golden(name: str) -> list[Manifest]:
    """All objects of a golden file."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return [Manifest(name, content) for content in yaml.safe_load_all(text)]


def one(name: str, kind: str, component: str) -> Manifest:
    """The object of this kind and part in a golden file."""
    [found] = [each for each in golden(name) if (each.kind, each.component) == (kind, component)]
    return found


ALL = [manifest for values in VALUES for manifest in golden(values.name.removesuffix(".values.yaml"))]
PODS = [manifest for manifest in ALL if manifest.kind in WORKLOADS]
