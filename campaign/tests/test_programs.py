"""The programs run as processes, natively: what a rank dumps is read back, and a lost write is detected."""

import json

import h5py
import pytest

from campaign import phase_dump, places, settings, tables
from campaign.console import Console
from campaign.result import Result
from campaign.runner import Program, ProgramFailed, run_all


@pytest.fixture
def small(tmp_path):
    chosen = settings.Settings(
        out=tmp_path, store=tmp_path / "store", dump_bytes=1 << 20, ranks=2, particles_per_rank=2000
    )
    return chosen, places.native("fast", "native", tmp_path / "files")


def dump_and_check(chosen, place, spoil=lambda file: None) -> list[str]:
    console, result = Console(), Result()
    phase_dump.dump(chosen, place, chosen.out, console, result, None)
    with h5py.File(phase_dump.file_of(place, 1), "r+") as file:
        spoil(file)
    return phase_dump.check(chosen, place, chosen.out, console, result)


def test_what_was_acknowledged_is_there(small):
    assert not dump_and_check(*small)


def test_a_single_wrong_value_is_noticed(small):
    def spoil(file):
        file["ux"][3, 1234] += 1e-6

    (lost,) = dump_and_check(*small, spoil)
    assert "ux[3, 0:2000]" in lost


def test_two_dumps_are_the_same_bytes(small):
    chosen, place = small
    other = places.native("disk", "native", chosen.out / "other")
    for where in (place, other):
        assert not dump_and_check(chosen, where)
    assert not phase_dump.same_bytes(chosen, place, other, chosen.out)
    log = phase_dump.acknowledged_of(other, chosen.out, 0)
    lines = log.read_text().splitlines()
    first = json.loads(lines[0])
    first[4] ^= 1
    log.write_text("\n".join([json.dumps(first), *lines[1:]]))
    (found,) = phase_dump.same_bytes(chosen, place, other, chosen.out)
    assert "rank 0" in found


def test_a_program_that_fails_is_told_with_its_last_words(small):
    chosen, place = small
    arguments = [str(chosen.out / "r.json"), str(chosen.out / "no-such.log"), "no-such.h5"]
    with pytest.raises(ProgramFailed, match=r"no-such\.log"):
        run_all([Program("check", "dump_check", arguments, place, chosen.out)], 1)


def test_programs_hear_of_cenote_only_by_two_variables(tmp_path):
    native = places.native("fast", "native", tmp_path).child_environment()
    cenote = places.cenote(tmp_path / "s", tmp_path, tmp_path / "plugins").child_environment()
    assert set(cenote) - set(native) == {places.PLUGIN, places.CONNECTOR}
    assert cenote[places.CONNECTOR] == f"cenote store={tmp_path / 's'}"
    assert all(native[key] == cenote[key] for key in native)


@pytest.mark.parametrize(("text", "expected"), [("64MiB", 64 << 20), ("1.5GiB", 3 << 29), ("2GB", 2 * 10**9), ("7", 7)])
def test_sizes(text, expected):
    assert settings.parse_size(text) == expected


def test_the_memory_tier_is_smaller_than_the_data(tmp_path):
    for arguments in ([], ["--quick"], ["--size", "4GiB", "--ranks", "8"]):
        chosen = settings.parse([*arguments, "--out", str(tmp_path)])
        dump = chosen.steps * chosen.particles * 32
        memory, fast, capacity = (tier["size"] for tier in chosen.tiers)
        assert memory < dump and memory + fast < dump < capacity
        assert dump == pytest.approx(chosen.dump_bytes, rel=0.2)


def test_sizes_for_people():
    assert [tables.size(number) for number in (0, 1023, 1536, 300 << 20)] == ["0 B", "1023 B", "1.5 KiB", "300 MiB"]
