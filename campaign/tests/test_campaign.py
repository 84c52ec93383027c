"""A small run of the whole campaign: on native HDF5 and on Cenote, with a kill. Run `make build` first."""

import json
import subprocess
import sys

from campaign.settings import ROOT


def campaign(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "campaign", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


def test_a_small_campaign_loses_nothing(tmp_path):
    done = campaign("--size", "32MiB", "--kills", "1", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads((tmp_path / "out/campaign-report.json").read_text())
    assert outcome["ok"] and outcome["cenote_ran"] and len(outcome["kills"]) == 1
    assert outcome["lost"]["acknowledged_checked"] == 4 * 16 * 8
    assert outcome["compared"]["variables"] > 2000
    assert not (tmp_path / "out/store").exists()


def test_a_store_of_somebody_is_left_alone(tmp_path):
    (tmp_path / "store").mkdir()
    precious = tmp_path / "store/superblock"
    precious.write_text("precious")
    done = campaign("--quick", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2 and "no campaign made" in done.stderr
    assert precious.read_text() == "precious"
