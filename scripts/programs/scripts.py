"""The programs: shell scripts that start in an empty directory, with their input in $INPUT."""

from dataclasses import dataclass, field


@dataclass
class Program:
    """A program to run."""

    name: str
    script: str
    # Required commands: without them it is skipped.
    needs: list[str] = field(default_factory=list)
    # Required input.
    input: str = ""
    # Files left out of the comparison; the reason is noted at the program.
    without: list[str] = field(default_factory=list)
    # Files whose times it sets.
    timed: list[str] = field(default_factory=list)


GIT = """
export GIT_AUTHOR_DATE='2026-01-01 00:00:00 +0000' GIT_COMMITTER_DATE='2026-01-01 00:00:00 +0000'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null EMAIL=a@b.example
git clone -q --no-local "file://$INPUT/repository" clone
cd clone
git config user.name A; git config user.email a@b
git checkout -q -b side HEAD~20
for file in $(git ls-files | grep -v link | awk 'NR % 50 == 0'); do
  echo changed >> "$file"; git mv "$file" "$file.moved"
done
git add -A; git commit -q -m side
git stash list
git checkout -q main; git merge -q --no-edit -X theirs side || { git add -A; git commit -q -m merged; }
git worktree add -q ../second side
git repack -q -a -d; git gc -q; git fsck --full --strict 2>&1 | grep -v '^dangling' || true
git status --porcelain > ../status
git rev-parse HEAD > ../head
git cat-file --batch-all-objects --batch-check | sort > ../objects
git log --stat --format=%H | sha256sum > ../log
"""

TAR = """
tar xf "$INPUT/linux.tar"
tar df "$INPUT/linux.tar" > differences 2>&1 || true
find . -type f | wc -l > files
find . -type f -printf '%s\\n' | awk '{n += $1} END {print n}' > bytes
tar --sort=name -cf - linux-source-*/fs linux-source-*/mm | sha256sum > packed
cp -a linux-source-*/mm copy
mv linux-source-*/drivers moved
grep -rl 'EXPORT_SYMBOL_GPL(.*rename' linux-source-*/fs | sort > found || true
rm -rf moved/gpu
"""

SQLITE = """
cat > work.py <<'END'
import multiprocessing, sqlite3
def rows(who):
    base = sqlite3.connect("data.db", timeout=120, isolation_level=None)
    base.execute("pragma synchronous=normal")
    for first in range(0, 4000, 20):
        base.execute("begin immediate")
        for n in range(first, first + 20):
            base.execute("insert into t values (?, ?, ?)", (who, n, f"{who}-{n}" * (n % 40)))
        if first % 400 == 0:
            base.execute("delete from t where who = ? and n % 7 = 3", (who,))
        base.execute("commit")
    base.close()
if __name__ == "__main__":
    base = sqlite3.connect("data.db")
    assert base.execute("pragma journal_mode=wal").fetchone() == ("wal",), "no WAL"
    base.execute("create table t (who, n, text, primary key (who, n))")
    base.execute("create index by_text on t (text)")
    base.commit()
    workers = [multiprocessing.get_context("spawn").Process(target=rows, args=(who,)) for who in (1, 2)]
    [one.start() for one in workers]; [one.join() for one in workers]
    assert all(one.exitcode == 0 for one in workers)
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    base.execute("pragma wal_checkpoint(truncate)"); base.execute("vacuum")
    with open("dump.sql", "w") as out:
        out.writelines(line + "\\n" for line in sorted(base.iterdump()))
    base.close()
END
python3 work.py
rm -f data.db-wal data.db-shm
"""

BUILD = """
cp -r "$INPUT/sources" .; cd sources
make -s -j2 program
./program > ../said
touch part7.cpp
make -j2 program | grep -c '^g++' > ../again
make -q program
"""

RSYNC = """
rsync -aHS "$INPUT/tree/" there/
rsync -aHnci --delete "$INPUT/tree/" there/ > first
for file in $(find there -type f -name '*7' -size +0 -printf '%P\\n' | tr ' ' '?' | sort); do
  echo more >> there/$file
done
rm -rf 'there/dir 3'; mkdir -p there/extra; echo x > there/extra/y
rsync -aHS --inplace -c --delete "$INPUT/tree/" there/
rsync -aHnci --delete "$INPUT/tree/" there/ > second
"""

OPENFOAM = """
set +eu; . /usr/share/openfoam/etc/bashrc > /dev/null 2>&1; set -e
cp -r "$OPENFOAM" case; cd case
chmod -R u+w .
sed -i 's/^endTime .*/endTime 40;/; s/^writeInterval .*/writeInterval 20;/; /^functions/,/^}/d' system/controlDict
[ -f system/decomposeParDict ] || cat > system/decomposeParDict <<'END'
FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
numberOfSubdomains 2;
method simple;
simpleCoeffs { n (2 1 1); delta 0.001; }
END
blockMesh > log.blockMesh
decomposePar > log.decomposePar
mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 2 \\
  simpleFoam -parallel > log.simpleFoam
reconstructPar > log.reconstructPar
grep -h '^Time = \\|residual' log.simpleFoam > ../residuals
"""

MPIIO = """
cp "$PROGRAMS/mpi_io.c" .
mpicc -O1 -o mpi_io mpi_io.c
# Open MPI has two implementations: its own, and ROMIO, which is MPICH's.
for io in ompio romio321; do
  mkdir $io
  mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca io $io -np 3 \\
    ./mpi_io $io
  sort $io/any-order > $io/sorted
done
"""

COREUTILS = """
mkdir -p a/b/c; echo one > a/one; ln a/one a/b/same; ln -s ../one a/b/link; mkfifo a/pipe
install -D -m 0750 /etc/passwd a/deep/er/passwd; cp -a a copy; cp -r --preserve=mode,links a other
mv copy/one copy/two; mv -T other moved; mv -n a/one copy/two; rm -r moved/b
dd if=/dev/zero of=sparse bs=1 count=0 seek=10M status=none
dd if=/dev/urandom bs=64K count=4 status=none | tee a/r1 > a/r2
cmp a/r1 a/r2; rm a/r1 a/r2; truncate -s 1234 sparse; fallocate -l 1M full; fallocate -p -o 4096 -l 8192 full
split -b 100K full piece-; cat piece-* | cmp - full
sort -R /etc/services | sort -o sorted; uniq sorted > unique
for n in $(seq 300); do echo "$n" >> log; done; sed -i s/299/x/ log; seq 1000 | split -l 1 -a 4 - many-
find . -name 'many-*' | xargs -P 2 -n 50 chmod 600
ls -l --time-style=+ a copy | grep -v ^total | awk '{print $1, $2, $NF}' > listed
touch -d '2001-02-03 04:05:06' old; touch -r old ref
stat -c '%Y' ref > when; test old -ot log; (flock 9; echo locked >> log) 9> lock
"""

PROGRAMS = [
    Program("coreutils", COREUTILS, ["fallocate", "flock"]),
    # .git: names and times of packs and the index; the script compares the content by its
    # objects.
    Program("git", GIT, ["git"], "repository", ["clone/.git", "second/.git"]),
    Program("tar", TAR, ["tar"], "linux", timed=["linux-source-*/*", "copy/*", "moved/*"]),
    # data.db: depends on the order of two processes.
    Program("sqlite", SQLITE, ["python3"], "", ["data.db"]),
    Program("build", BUILD, ["g++", "make"], "sources"),
    Program("rsync", RSYNC, ["rsync"], "tree", timed=["there/*"]),
    # any-order: the ranks' lines in the order of arrival.
    Program("mpiio", MPIIO, ["mpicc", "mpirun"], "", ["mpi_io", "*/any-order"]),
    # Logs contain durations and the machine's state.
    Program(
        "openfoam",
        OPENFOAM,
        ["simpleFoam", "mpirun"],
        "openfoam",
        ["case/log.*", "case/processor*/*/uniform/profiling"],
    ),
]
