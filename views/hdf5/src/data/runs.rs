//! Runs: selections laid out, and how two selections are walked in step.
//!
//! Everything here counts *elements*, never bytes, so that a memory type and a file type of different sizes can be walked
//! in step. Nothing here knows HDF5, chunks or the store.

use cenote::{Error, ErrorKind, Result};

/// Consecutive elements of a linear space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First element.
    pub at: u64,
    /// Elements; never 0 in a list.
    pub count: u64,
}

/// Elements that are consecutive both in memory and in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// First element in the memory space.
    pub mem: u64,
    /// First element in the file space.
    pub file: u64,
    /// Elements; never 0.
    pub count: u64,
}

/// A source of the runs of one selection, in the order of the selection.
pub trait RunSource {
    /// Appends some further runs to `out`; appends none at the end.
    fn fetch(&mut self, out: &mut Vec<Run>) -> Result<()>;
}

/// One run: a whole extent, or a block of memory.
pub struct OneRun(Option<Run>);

impl OneRun {
    /// `count` elements from `at` on.
    pub fn new(at: u64, count: u64) -> Self {
        Self((count > 0).then_some(Run { at, count }))
    }
}

impl RunSource for OneRun {
    fn fetch(&mut self, out: &mut Vec<Run>) -> Result<()> {
        out.extend(self.0.take());
        Ok(())
    }
}

/// A regular hyperslab, laid out without asking the HDF5 library.
///
/// Invariant: the selection lies in the extent (the library has checked it).
pub struct RegularRuns {
    /// Per dimension: elements of the linear space per step of the index.
    strides: Vec<u64>,
    start: Vec<u64>,
    stride: Vec<u64>,
    count: Vec<u64>,
    block: Vec<u64>,
    /// Position of the next run: (block, row of the block) per outer dimension; the last dimension counts blocks.
    at: Vec<(u64, u64)>,
    done: bool,
    /// Elements of one run, after folding in trailing dimensions that are selected whole.
    run_count: u64,
}

impl RegularRuns {
    /// The hyperslab with these parameters in an extent of `dims`.
    pub fn new(dims: &[u64], start: &[u64], stride: &[u64], count: &[u64], block: &[u64]) -> Self {
        let mut strides = vec![1u64; dims.len()];
        for i in (0..dims.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1].saturating_mul(dims[i + 1]);
        }
        let (mut start, mut stride, mut count, mut block) =
            (start.to_vec(), stride.to_vec(), count.to_vec(), block.to_vec());
        // Adjacent blocks are one block.
        for i in 0..dims.len() {
            if stride[i] == block[i] || count[i] == 1 {
                block[i] *= count[i];
                count[i] = 1;
                stride[i] = block[i].max(1);
            }
        }
        let done = count.iter().zip(&block).any(|(c, b)| *c == 0 || *b == 0);
        // Trailing dimensions selected whole lengthen the runs of the dimension before them.
        let mut rank = dims.len();
        while rank > 1 && count[rank - 1] == 1 && start[rank - 1] == 0 && block[rank - 1] == dims[rank - 1] {
            rank -= 1;
        }
        for list in [&mut start, &mut stride, &mut count, &mut block, &mut strides] {
            list.truncate(rank);
        }
        let run_count = if rank == 0 { 1 } else { block[rank - 1] * strides[rank - 1] };
        Self { strides, start, stride, count, block, at: vec![(0, 0); rank], done, run_count }
    }

    fn step(&mut self) {
        let last = self.at.len().wrapping_sub(1);
        for i in (0..self.at.len()).rev() {
            let (which, row) = &mut self.at[i];
            // The last dimension advances block by block; the others row by row within their block.
            if i != last && *row + 1 < self.block[i] {
                *row += 1;
                return;
            }
            *row = 0;
            if *which + 1 < self.count[i] {
                *which += 1;
                return;
            }
            *which = 0;
        }
        self.done = true;
    }
}

impl RunSource for RegularRuns {
    fn fetch(&mut self, out: &mut Vec<Run>) -> Result<()> {
        for _ in 0..1024 {
            if self.done {
                break;
            }
            let at = (0..self.at.len())
                .map(|i| (self.start[i] + self.at[i].0 * self.stride[i] + self.at[i].1) * self.strides[i])
                .sum();
            out.push(Run { at, count: self.run_count });
            self.step();
        }
        Ok(())
    }
}

/// Buffered reading of a source.
struct Cursor<'a> {
    source: &'a mut dyn RunSource,
    runs: Vec<Run>,
    next: usize,
}

impl<'a> Cursor<'a> {
    fn new(source: &'a mut dyn RunSource) -> Self {
        Self { source, runs: Vec::new(), next: 0 }
    }

    /// The run at the front; `None` at the end.
    fn front(&mut self) -> Result<Option<Run>> {
        if self.next == self.runs.len() {
            self.runs.clear();
            self.next = 0;
            self.source.fetch(&mut self.runs)?;
        }
        Ok(self.runs.get(self.next).copied())
    }

    /// Takes `count` elements off the front.
    fn take(&mut self, count: u64) {
        let run = &mut self.runs[self.next];
        run.at += count;
        run.count -= count;
        if run.count == 0 {
            self.next += 1;
        }
    }
}

/// Two selections with equal numbers of elements, walked in step.
pub struct Zip<'a> {
    mem: Cursor<'a>,
    file: Cursor<'a>,
}

impl<'a> Zip<'a> {
    /// Walks `mem` and `file` in step.
    pub fn new(mem: &'a mut dyn RunSource, file: &'a mut dyn RunSource) -> Self {
        Self { mem: Cursor::new(mem), file: Cursor::new(file) }
    }

    /// Appends pairs to `out` until they hold `elements_max` elements, there are `pairs_max` of them, or the selections
    /// end. Returns the number of elements appended. Neighbours that are adjacent on both sides become one pair.
    pub fn fill(&mut self, out: &mut Vec<Pair>, elements_max: u64, pairs_max: usize) -> Result<u64> {
        let mut total = 0;
        while total < elements_max && out.len() < pairs_max {
            let (mem, file) = match (self.mem.front()?, self.file.front()?) {
                (Some(mem), Some(file)) => (mem, file),
                (None, None) => break,
                _ => {
                    return Err(Error::new(ErrorKind::InvalidInput, "selections of memory and file")
                        .because("they hold different numbers of elements"));
                }
            };
            let count = mem.count.min(file.count).min(elements_max - total);
            self.mem.take(count);
            self.file.take(count);
            total += count;
            match out.last_mut() {
                Some(last) if last.mem + last.count == mem.at && last.file + last.count == file.at => {
                    last.count += count;
                }
                _ => out.push(Pair { mem: mem.at, file: file.at, count }),
            }
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct List(Vec<Run>);
    impl RunSource for List {
        fn fetch(&mut self, out: &mut Vec<Run>) -> Result<()> {
            // Two at a time, to exercise refilling.
            let n = self.0.len().min(2);
            out.extend(self.0.drain(..n));
            Ok(())
        }
    }

    fn all(source: &mut dyn RunSource) -> Vec<Run> {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            source.fetch(&mut out).unwrap();
            if out.len() == before {
                return out;
            }
        }
    }

    fn elements(runs: &[Run]) -> Vec<u64> {
        runs.iter().flat_map(|r| r.at..r.at + r.count).collect()
    }

    /// Every selected element by the definition of a hyperslab.
    fn oracle(dims: &[u64], start: &[u64], stride: &[u64], count: &[u64], block: &[u64]) -> Vec<u64> {
        let total: u64 = dims.iter().product();
        (0..total)
            .filter(|linear| {
                let mut rest = *linear;
                (0..dims.len()).rev().all(|i| {
                    let x = rest % dims[i];
                    rest /= dims[i];
                    x >= start[i] && (x - start[i]) / stride[i] < count[i] && (x - start[i]) % stride[i] < block[i]
                })
            })
            .collect()
    }

    #[test]
    fn regular_hyperslabs_match_their_definition() {
        let seed = std::env::var("CENOTE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7u64);
        println!("CENOTE_SEED={seed}");
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..2000 {
            let rank = 1 + random(4) as usize;
            let (mut dims, mut start, mut stride, mut count, mut block) = (vec![], vec![], vec![], vec![], vec![]);
            for _ in 0..rank {
                let (s, b, c) = (random(3), 1 + random(3), 1 + random(3));
                let st = b + random(2);
                start.push(s);
                block.push(b);
                count.push(c);
                stride.push(st);
                dims.push(s + (c - 1) * st + b + random(3));
            }
            let runs = all(&mut RegularRuns::new(&dims, &start, &stride, &count, &block));
            assert_eq!(
                elements(&runs),
                oracle(&dims, &start, &stride, &count, &block),
                "{dims:?} {start:?} {stride:?} {count:?} {block:?}"
            );
        }
    }

    #[test]
    fn whole_trailing_dimensions_fold_into_one_run() {
        let runs = all(&mut RegularRuns::new(&[8, 4, 5], &[2, 0, 0], &[1, 1, 1], &[3, 4, 5], &[1, 1, 1]));
        assert_eq!(runs, [Run { at: 40, count: 60 }]);
        assert!(all(&mut RegularRuns::new(&[8, 4], &[0, 0], &[1, 1], &[0, 4], &[1, 1])).is_empty());
    }

    #[test]
    fn zip_cuts_joins_and_respects_limits() {
        let run = |at, count| Run { at, count };
        let mut mem = List(vec![run(0, 4), run(4, 2), run(10, 4)]);
        let mut file = List(vec![run(100, 6), run(200, 1), run(201, 3)]);
        let mut zip = Zip::new(&mut mem, &mut file);
        let mut out = Vec::new();
        assert_eq!(zip.fill(&mut out, 8, 100).unwrap(), 8);
        assert_eq!(out, [Pair { mem: 0, file: 100, count: 6 }, Pair { mem: 10, file: 200, count: 2 }]);
        out.clear();
        assert_eq!(zip.fill(&mut out, 8, 100).unwrap(), 2);
        assert_eq!(out, [Pair { mem: 12, file: 202, count: 2 }]);
        out.clear();
        assert_eq!(zip.fill(&mut out, 8, 100).unwrap(), 0);
    }

    #[test]
    fn zip_refuses_unequal_selections() {
        let mut mem = OneRun::new(0, 3);
        let mut file = OneRun::new(0, 4);
        let mut zip = Zip::new(&mut mem, &mut file);
        assert_eq!(zip.fill(&mut Vec::new(), 100, 100).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
