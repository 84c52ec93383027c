"""Compares tables of files: any missing, extra or different row is a difference."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """A row that differs."""

    file: str
    row: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file} {self.row}: expected {self.expected[:120]}, found {self.found[:120]}"


@dataclass
class Counts:
    """The amount compared."""

    files: int = 0
    variables: int = 0
    attributes: int = 0
    dimensions: int = 0
    rows: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


Tables = dict[str, dict[str, str]]
ABSENT = "nothing"


def counts(tables: Tables) -> Counts:
    """The amount in tables."""
    rows = [row for table in tables.values() for row in table]
    return Counts(
        files=len(tables),
        variables=sum(row.endswith(":values") for row in rows),
        attributes=sum("@" in row and not row.endswith(":type") for row in rows),
        dimensions=sum("#" in row and "@" not in row for row in rows),
        rows=len(rows),
    )


def differences(expected: Tables, found: Tables) -> list[Difference]:
    """Every row of every file that is missing, extra or different."""
    result = []
    for file in sorted(expected.keys() | found.keys()):
        left, right = expected.get(file, {}), found.get(file, {})
        for row in [*left, *(row for row in right if row not in left)]:
            if left.get(row, ABSENT) != right.get(row, ABSENT):
                result.append(Difference(file, row, left.get(row, ABSENT), right.get(row, ABSENT)))
    return result


def content_only(tables: Tables) -> Tables:
    """What a conversion to NetCDF-4 keeps: dimensions, attributes and values, not the storage layout."""
    return {
        file.rsplit("/", 1)[-1]: {
            row: text for row, text in table.items() if "#" in row or "@" in row or row.endswith(":values")
        }
        for file, table in tables.items()
    }
