//! Chunk geometry: the chunk of an element, and its position there. Pure arithmetic in elements.

use cenote::{Error, ErrorKind, Result};

/// Elements of one chunk that are consecutive in the chunk and in the dataset's extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Number of the chunk: row-major in the grid of the present extent.
    pub chunk: u64,
    /// First element in the chunk.
    pub at: u64,
    /// First element on the other side (memory or scratch).
    pub mem: u64,
    /// Elements; never 0.
    pub count: u64,
}

/// An extent cut into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    dims: Vec<u64>,
    chunk: Vec<u64>,
    grid: Vec<u64>,
    /// The same with dimensions merged where the chunk spans the inner one exactly: fewer, longer pieces.
    fold: Vec<Folded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Folded {
    dim: u64,
    chunk: u64,
    /// Chunks per step of this grid coordinate.
    grid_stride: u64,
    /// Elements of a chunk per step of this index.
    chunk_stride: u64,
}

/// `a / b`, rounded up.
fn div_up(a: u64, b: u64) -> u64 {
    a.div_ceil(b)
}

impl Geometry {
    /// An extent of `dims` in chunks of `chunk` elements; equal rank, no chunk dimension 0.
    pub fn new(dims: &[u64], chunk: &[u64]) -> Result<Self> {
        if dims.len() != chunk.len() || dims.is_empty() || chunk.contains(&0) {
            return Err(Error::new(ErrorKind::InvalidInput, "chunk dimensions")
                .because(format!("{chunk:?} does not fit an extent of {dims:?}")));
        }
        let elements = chunk.iter().try_fold(1u64, |product, c| product.checked_mul(*c));
        let grid: Vec<u64> = dims.iter().zip(chunk).map(|(d, c)| div_up(*d, *c)).collect();
        let chunks = grid.iter().try_fold(1u64, |product, g| product.checked_mul(*g));
        if elements.is_none() || chunks.is_none() {
            return Err(Error::new(ErrorKind::LimitExceeded, "chunk dimensions")
                .because(format!("{chunk:?} in an extent of {dims:?} passes 2^64")));
        }
        let mut fold: Vec<Folded> = Vec::with_capacity(dims.len());
        let (mut grid_stride, mut chunk_stride) = (1u64, 1u64);
        for i in (0..dims.len()).rev() {
            let this = Folded { dim: dims[i], chunk: chunk[i], grid_stride, chunk_stride };
            match fold.last_mut() {
                // The chunk spans the inner dimension exactly: rows of this dimension are adjacent, inside and
                // outside.
                Some(inner) if inner.chunk == inner.dim => {
                    *inner = Folded {
                        dim: this.dim.saturating_mul(inner.dim),
                        chunk: this.chunk.saturating_mul(inner.chunk),
                        grid_stride,
                        chunk_stride: inner.chunk_stride,
                    };
                }
                _ => fold.push(this),
            }
            grid_stride = grid_stride.saturating_mul(grid[i]);
            chunk_stride = chunk_stride.saturating_mul(chunk[i]);
        }
        fold.reverse();
        Ok(Self { dims: dims.to_vec(), chunk: chunk.to_vec(), grid, fold })
    }

    /// The extent.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }
    /// Chunks along each dimension.
    pub fn grid(&self) -> &[u64] {
        &self.grid
    }
    /// Dimensions of a chunk.
    pub fn chunk(&self) -> &[u64] {
        &self.chunk
    }
    /// Elements of a whole chunk (chunks at the edge are stored whole).
    pub fn elements_per_chunk(&self) -> u64 {
        self.chunk.iter().product()
    }
    /// Chunks in the extent.
    pub fn chunks(&self) -> u64 {
        self.grid.iter().product()
    }
    /// Elements of the extent in chunk `number`: fewer than a whole chunk at the edge.
    pub fn elements_inside(&self, number: u64) -> u64 {
        let coords = self.coords(number);
        (0..self.dims.len()).map(|i| self.chunk[i].min(self.dims[i] - coords[i] * self.chunk[i])).product()
    }
    /// Grid coordinates of chunk `number`.
    pub fn coords(&self, mut number: u64) -> Vec<u64> {
        let mut coords = vec![0; self.grid.len()];
        for i in (0..self.grid.len()).rev() {
            coords[i] = number % self.grid[i];
            number /= self.grid[i];
        }
        coords
    }
    /// Number of the chunk at these grid coordinates; `None` outside the extent.
    pub fn number(&self, coords: &[u64]) -> Option<u64> {
        coords.iter().zip(&self.grid).try_fold(0u64, |number, (c, g)| (c < g).then(|| number * g + c))
    }

    /// Cuts `count` elements of the extent from `at` on (row-major) at chunk borders. `mem`: the first element on
    /// the other side, which advances in step.
    pub fn cut(&self, at: u64, mem: u64, count: u64, out: &mut Vec<Piece>) {
        let rank = self.fold.len();
        if self.fold.iter().any(|f| f.dim == 0) {
            return; // empty extent: the caller sees that pieces are missing
        }
        let (mut at, mut mem, mut left) = (at, mem, count);
        while left > 0 {
            // The element's coordinates, its chunk, and the rest of its row in this chunk.
            let (mut rest, mut chunk, mut inside) = (at, 0u64, 0u64);
            let mut row = 0;
            for i in (0..rank).rev() {
                let f = &self.fold[i];
                let x = rest % f.dim;
                rest /= f.dim;
                let (g, within) = (x / f.chunk, x % f.chunk);
                chunk += g * f.grid_stride;
                inside += within * f.chunk_stride;
                if i == rank - 1 {
                    row = (f.chunk - within).min(f.dim - x);
                }
            }
            // The rest of this row of the extent passes through whole chunk rows: no further division needed.
            let last = self.fold[rank - 1];
            let mut row_left = (last.dim - at % last.dim).min(left);
            let mut take = row.min(row_left);
            loop {
                out.push(Piece { chunk, at: inside, mem, count: take });
                at += take;
                mem += take;
                left -= take;
                row_left -= take;
                if row_left == 0 {
                    break;
                }
                // The next chunk of this row begins at its own column 0.
                inside -= inside / last.chunk_stride % last.chunk * last.chunk_stride;
                chunk += last.grid_stride;
                take = last.chunk.min(row_left);
            }
        }
    }
}

/// Sorts pieces by chunk (keeping the order within each) and joins those that touch on both sides.
pub fn group(pieces: &mut Vec<Piece>) {
    pieces.sort_by_key(|p| p.chunk);
    pieces.dedup_by(|next, kept| {
        let touches = next.chunk == kept.chunk && kept.at + kept.count == next.at && kept.mem + kept.count == next.mem;
        if touches {
            kept.count += next.count;
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % below
    }

    #[test]
    fn every_element_lands_where_the_definition_says() {
        let seed = std::env::var("CENOTE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11u64);
        println!("CENOTE_SEED={seed}");
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for _ in 0..1000 {
            let rank = 1 + random(&mut state, 4) as usize;
            let dims: Vec<u64> = (0..rank).map(|_| 1 + random(&mut state, 7)).collect();
            let chunk: Vec<u64> = (0..rank).map(|_| 1 + random(&mut state, 8)).collect();
            let geometry = Geometry::new(&dims, &chunk).unwrap();
            let total: u64 = dims.iter().product();
            let at = random(&mut state, total);
            let count = 1 + random(&mut state, total - at);
            let mut pieces = Vec::new();
            geometry.cut(at, 1000, count, &mut pieces);
            if random(&mut state, 2) == 0 {
                group(&mut pieces);
            }
            let mut seen = vec![None; count as usize];
            for p in &pieces {
                for k in 0..p.count {
                    let slot = &mut seen[(p.mem - 1000 + k) as usize];
                    assert!(slot.is_none());
                    *slot = Some((p.chunk, p.at + k));
                }
            }
            for (k, got) in seen.into_iter().enumerate() {
                let mut rest = at + k as u64;
                let mut x = vec![0; rank];
                for i in (0..rank).rev() {
                    x[i] = rest % dims[i];
                    rest /= dims[i];
                }
                let coords: Vec<u64> = (0..rank).map(|i| x[i] / chunk[i]).collect();
                let inside = (0..rank).fold(0, |sum, i| sum * chunk[i] + x[i] % chunk[i]);
                let number = geometry.number(&coords).unwrap();
                assert_eq!(got, Some((number, inside)), "dims {dims:?} chunk {chunk:?} element {k} from {at}");
                assert_eq!(geometry.coords(number), coords);
            }
            let inside: u64 = (0..geometry.chunks()).map(|n| geometry.elements_inside(n)).sum();
            assert_eq!(inside, total);
        }
    }

    #[test]
    fn whole_slices_are_one_piece() {
        let geometry = Geometry::new(&[100, 40, 50], &[1, 40, 50]).unwrap();
        let mut pieces = Vec::new();
        geometry.cut(2000, 0, 4000, &mut pieces);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1], Piece { chunk: 2, at: 0, mem: 2000, count: 2000 });
    }

    #[test]
    fn bad_shapes_are_refused() {
        assert!(Geometry::new(&[3], &[0]).is_err());
        assert!(Geometry::new(&[3], &[1, 1]).is_err());
        assert!(Geometry::new(&[], &[]).is_err());
        assert!(Geometry::new(&[3, 3], &[1 << 40, 1 << 40]).is_err());
        assert_eq!(Geometry::new(&[0, 3], &[2, 2]).unwrap().chunks(), 0);
    }
}
