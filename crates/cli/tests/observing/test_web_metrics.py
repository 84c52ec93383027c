"""Prometheus's own parser reads the metrics."""

import subprocess
import urllib.request
from collections.abc import Callable

from observed import MIB, Served
from prometheus_client.parser import text_string_to_metric_families


def scrape(served: Served) -> dict:
    with urllib.request.urlopen(served.url + "metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "each family once"
    return {family.name: family for family in families}


def test_every_family_is_well_formed(served: Served, writer: subprocess.Popen, wait: Callable[..., object]) -> None:
    def flowed() -> bool:
        served.cenote("flush")  # otherwise it takes long while a program writes
        families = scrape(served)
        # Of messages with writes, one in sixteen is timed.
        put = any(sample.labels["operation"] == "put" for sample in families["cenote_latency_seconds"].samples)
        return put and any(sample.labels["why"] == "durability" for sample in families["cenote_flow_bytes"].samples)

    wait(flowed, "copies for durability")
    families = scrape(served)
    assert len(families) > 25
    for family in families.values():
        assert family.documentation and family.type in {"counter", "gauge", "histogram"}, family
        assert family.name.startswith("cenote_"), family.name
        seen = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(seen) == len(set(seen)), f"{family.name}: a sample twice"
        if family.type == "counter":
            assert all(sample.name.endswith("_total") and sample.value >= 0 for sample in family.samples), family
    capacity = {sample.labels["tier"]: sample.value for sample in families["cenote_tier_capacity_bytes"].samples}
    assert capacity == {"memory": 64 * MIB, "disk": 256 * MIB}
    used = {sample.labels["tier"]: sample.value for sample in families["cenote_tier_used_bytes"].samples}
    assert used["memory"] >= 4 * MIB
    histograms: dict[tuple, list] = {}
    for sample in families["cenote_latency_seconds"].samples:
        labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "le")
        histograms.setdefault(labels, []).append(sample)
    assert ("get", "memory") in histograms and ("put", "memory") in histograms, histograms.keys()
    for labels, samples in histograms.items():
        counts = [sample.value for sample in samples if sample.name.endswith("_bucket")]
        ends = [float(sample.labels["le"]) for sample in samples if sample.name.endswith("_bucket")]
        assert counts == sorted(counts) and ends == sorted(ends) and ends[-1] == float("inf"), labels
        [all_of_them] = [sample.value for sample in samples if sample.name.endswith("_count")]
        assert all_of_them == counts[-1] > 0, labels


def test_counters_are_what_was_done(served: Served, tmp_path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 10 * MIB)
    name = served.cenote("put", str(tmp_path / "data"), "runs").strip()
    served.cenote("cat", name)
    served.cenote("cat", name)
    samples = scrape(served)["cenote_flow_bytes"].samples
    flows = {(sample.labels["from"], sample.labels["to"], sample.labels["why"]): sample.value for sample in samples}
    assert flows["client", "memory", "write"] == 10 * MIB
    assert flows["memory", "client", "read"] == 20 * MIB, "also of clients that left"


def test_labels_may_be_anything(served: Served) -> None:
    label = 'a "quoted\\ label'
    served.cenote("mk", label)
    samples = scrape(served)["cenote_container_objects"].samples
    assert label in [sample.labels["container"] for sample in samples]
