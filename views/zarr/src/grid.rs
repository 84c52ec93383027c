//! How a dataset that HDF5 does not chunk is cut for Zarr: a run of elements in row-major order, into pieces that are
//! runs.

/// Most bytes of a piece, unless one row of the innermost dimension has more.
const PIECE_BYTES: u64 = 4 << 20;

/// The shape of a piece of a run with these dimensions: whole slices along one dimension, one step of those before it.
pub fn piece(dims: &[u64], element_bytes: u64) -> Vec<u64> {
    let mut shape: Vec<u64> = vec![1; dims.len()];
    let mut bytes = element_bytes.max(1);
    for i in (0..dims.len()).rev() {
        let fit = (PIECE_BYTES / bytes).clamp(1, dims[i].max(1));
        shape[i] = if fit < dims[i] { divisor_near(dims[i], fit) } else { fit };
        if shape[i] < dims[i] {
            break;
        }
        bytes = bytes.saturating_mul(shape[i]);
    }
    shape
}

/// The largest divisor of `n` up to `most`, so that no piece reaches past the end; `most` where that is much smaller.
fn divisor_near(n: u64, most: u64) -> u64 {
    (most / 2..=most).rev().take(4096).find(|d| *d > 0 && n.is_multiple_of(*d)).unwrap_or(most)
}

/// Number of pieces along each dimension.
pub fn counts(dims: &[u64], shape: &[u64]) -> Vec<u64> {
    dims.iter().zip(shape).map(|(dim, step)| dim.div_ceil(*step)).collect()
}

/// First element of the piece at these grid coordinates, its number of elements, and that of a whole piece; `None`
/// outside.
pub fn run(dims: &[u64], shape: &[u64], coords: &[u64]) -> Option<(u64, u64, u64)> {
    let is_inside = coords.len() == dims.len() && coords.iter().zip(counts(dims, shape)).all(|(x, n)| *x < n);
    if !is_inside {
        return None;
    }
    let (mut first, mut count) = (0, 1);
    for i in 0..dims.len() {
        let begin = coords[i] * shape[i];
        first = first * dims[i] + begin;
        count *= shape[i].min(dims[i] - begin);
    }
    Some((first, count, shape.iter().product()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_runs_that_cover_everything_once() {
        let cases: [(&[u64], u64); 8] = [
            (&[], 8),
            (&[5], 4),
            (&[3_000_000], 4),
            (&[1_000_003], 8),
            (&[100, 200, 300], 8),
            (&[7, 3, 2_000_000], 4),
            (&[2, 0, 3], 4),
            (&[40, 2], 3 << 20),
        ];
        for (dims, bytes) in cases {
            let shape = piece(dims, bytes);
            let grid = counts(dims, &shape);
            let (mut at, mut n) = (0, 0);
            let all: u64 = grid.iter().product();
            for number in 0..all {
                let mut rest = number;
                let mut coords = vec![0; dims.len()];
                for i in (0..dims.len()).rev() {
                    coords[i] = rest % grid[i];
                    rest /= grid[i];
                }
                let (first, count, whole) = run(dims, &shape, &coords).unwrap();
                assert_eq!(first, at, "{dims:?} {shape:?} {coords:?}");
                assert!(count <= whole && (whole * bytes <= PIECE_BYTES || whole == 1));
                at += count;
                n += 1;
            }
            assert_eq!((at, n), (dims.iter().product(), all));
            assert!(run(dims, &shape, &grid).is_none() || dims.is_empty());
        }
    }
}
