//! Parity: k data parts and m parity parts, any k of which give all others (Reed and Solomon 1960).
//!
//! The code is systematic over GF(2^8) modulo `x^8 + x^4 + x^3 + x^2 + 1`. Parity `i` of data `d` is `Σ a[i][j] d[j]`
//! with `a` a Cauchy matrix (Blömer et al., *An XOR-based erasure-resilient coding scheme*, ICSI TR-95-048), columns
//! divided by its first row: `a[i][j] = (x₀ + j) / (xᵢ + j)`, `xᵢ = k + i`, where + is exclusive or. Each square part of
//! such a matrix has an inverse, so any m losses can be undone, and its first row is ones: parity 0 is the exclusive or of
//! the data, whatever m is, and the loss of one data part costs no multiplication. This matrix is part of the format of
//! coded stripes; it must never change.
//!
//! Each byte is coded by itself. So a range of a part is rebuilt from the same range of other parts.

mod gf;

use cenote_model::{Error, ErrorKind, Result};

use crate::PARTS_MAX;

/// Bytes that are coded at a time, so that they stay in the first cache while all parities are computed.
const BLOCK_BYTES: usize = 8 << 10;

/// A code of `data` and `parity` parts.
///
/// ```
/// # use cenote_layout::Code;
/// let code = Code::new(3, 2).unwrap();
/// let data: [&[u8]; 3] = [b"stri", b"pes ", b"of"]; // the last part of an object is shorter
/// let (mut p, mut q) = ([0; 4], [0; 4]);
/// code.encode(&data, &mut [&mut p, &mut q]).unwrap();
/// let (mut first, mut last) = ([0; 4], [0; 2]);
/// let present = [None, Some(data[1]), None, Some(&p[..]), Some(&q[..])];
/// code.rebuild(&present, &mut [(0, &mut first), (2, &mut last)]).unwrap();
/// assert_eq!((&first, &last), (b"stri", b"of"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    data: usize,
    parity: usize,
    /// Coefficients, a row for each parity part.
    rows: Vec<u8>,
}

fn refuse(data: usize, parity: usize, cause: String) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("code {data}+{parity}")).because(cause)
}

impl Code {
    /// The code of so many parts.
    ///
    /// # Errors
    /// `InvalidInput` if there is no data part, or more than 255 parts together.
    pub fn new(data: usize, parity: usize) -> Result<Self> {
        if data == 0 || data + parity > usize::from(PARTS_MAX) {
            return Err(refuse(data, parity, "it takes 1 to 255 parts, at least one of them data".into()));
        }
        let coefficient = |i: usize, j: usize| gf::div((data ^ j) as u8, ((data + i) ^ j) as u8);
        let rows = (0..parity).flat_map(|i| (0..data).map(move |j| coefficient(i, j))).collect();
        Ok(Self { data, parity, rows })
    }
    /// Number of data parts.
    pub fn data(&self) -> usize {
        self.data
    }
    /// Number of parity parts.
    pub fn parity(&self) -> usize {
        self.parity
    }

    fn row(&self, parity: usize) -> &[u8] {
        &self.rows[parity * self.data..][..self.data]
    }

    /// Computes all parity parts. Each must be as long as the longest data part; data parts that are shorter count as
    /// continued by zeros.
    ///
    /// # Errors
    /// `InvalidInput` if numbers of parts or lengths do not fit.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<()> {
        let longest = data.iter().map(|part| part.len()).max().unwrap_or(0);
        if data.len() != self.data || parity.len() != self.parity {
            let cause = format!("{} data and {} parity parts were given", data.len(), parity.len());
            return Err(refuse(self.data, self.parity, cause));
        }
        if let Some(wrong) = parity.iter().find(|part| part.len() != longest) {
            let cause = format!("a parity part of {} bytes for data parts of {longest}", wrong.len());
            return Err(refuse(self.data, self.parity, cause));
        }
        let rows: Vec<&[u8]> = (0..self.parity).map(|i| self.row(i)).collect();
        combine(&rows, data, parity);
        Ok(())
    }

    /// Computes the wanted parts, each named by its number (data parts first), from those present: one entry for each
    /// part, with the same range of each. At least `data` of them must be present.
    ///
    /// A present data part that is shorter than what is wanted counts as continued by zeros, as in
    /// [`encode`](Self::encode): it must be short for no other reason. A data part that has no bytes in a short stripe is
    /// present and empty.
    ///
    /// # Errors
    /// `InvalidInput` if numbers of parts do not fit, if too few are present, if a parity part is shorter than what is
    /// wanted, or if a wanted part is not the code's.
    pub fn rebuild(&self, present: &[Option<&[u8]>], wanted: &mut [(usize, &mut [u8])]) -> Result<()> {
        let sources = self.sources(present, wanted)?;
        let parts: Vec<usize> = wanted.iter().map(|(part, _)| *part).collect();
        let rows = self.decoding_rows(&sources, &parts)?;
        let bytes: Vec<&[u8]> = sources.iter().map(|part| present[*part].unwrap_or_default()).collect();
        let mut outputs: Vec<&mut [u8]> = wanted.iter_mut().map(|(_, bytes)| &mut **bytes).collect();
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        combine(&rows, &bytes, &mut outputs);
        Ok(())
    }

    /// The parts to compute from: all data parts that are present, and the first parity parts for those that are not.
    fn sources(&self, present: &[Option<&[u8]>], wanted: &[(usize, &mut [u8])]) -> Result<Vec<usize>> {
        let all = self.data + self.parity;
        if present.len() != all || wanted.iter().any(|(part, _)| *part >= all) {
            return Err(refuse(self.data, self.parity, format!("parts 0 to {} exist; others were given", all - 1)));
        }
        let mut sources: Vec<usize> = (0..all).filter(|part| present[*part].is_some()).collect();
        if sources.len() < self.data {
            let cause = format!("{} parts are needed and {} are present", self.data, sources.len());
            return Err(refuse(self.data, self.parity, cause));
        }
        sources.truncate(self.data);
        let longest = wanted.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
        let is_short = |part: usize| part >= self.data && present[part].is_some_and(|bytes| bytes.len() < longest);
        match sources.iter().find(|part| is_short(**part)) {
            Some(part) => {
                Err(refuse(self.data, self.parity, format!("parity part {part} is shorter than what is wanted")))
            }
            None => Ok(sources),
        }
    }

    /// For each wanted part the coefficients of the sources.
    fn decoding_rows(&self, sources: &[usize], wanted: &[usize]) -> Result<Vec<Vec<u8>>> {
        let lost: Vec<usize> = (0..self.data).filter(|part| !sources.contains(part)).collect();
        let of_lost = self.rows_of_lost(sources, &lost)?;
        let of_data = |part: usize| match lost.iter().position(|other| *other == part) {
            Some(at) => of_lost[at].clone(),
            None => sources.iter().map(|source| u8::from(*source == part)).collect(),
        };
        let of_parity = |parity: usize| {
            let mut row = vec![0; sources.len()];
            for (part, factor) in self.row(parity).iter().enumerate() {
                add_row(&mut row, *factor, &of_data(part));
            }
            row
        };
        let of = |part: usize| if part < self.data { of_data(part) } else { of_parity(part - self.data) };
        Ok(wanted.iter().map(|part| of(*part)).collect())
    }

    /// Solves `parity = known + A · lost` for the lost data parts: `A` has the rows of the parities that are sources.
    fn rows_of_lost(&self, sources: &[usize], lost: &[usize]) -> Result<Vec<Vec<u8>>> {
        let parities = sources.iter().filter(|part| **part >= self.data).map(|part| part - self.data);
        let mut left: Vec<Vec<u8>> = Vec::with_capacity(lost.len());
        let mut right: Vec<Vec<u8>> = Vec::with_capacity(lost.len());
        for parity in parities {
            let row = self.row(parity);
            left.push(lost.iter().map(|part| row[*part]).collect());
            let known = |source: &usize| {
                if *source < self.data { row[*source] } else { u8::from(*source - self.data == parity) }
            };
            right.push(sources.iter().map(known).collect());
        }
        // Every square part of the matrix has an inverse, so this cannot fail.
        let singular = || Error::new(ErrorKind::Internal, format!("code {}+{}", self.data, self.parity));
        solve(&mut left, &mut right).ok_or_else(singular)?;
        Ok(right)
    }
}

/// Gauss and Jordan: turns `left` into the unit matrix and `right` into the solution; none if `left` is singular. Rows need
/// no exchange: each square part of a Cauchy matrix has an inverse, so no pivot is 0.
fn solve(left: &mut [Vec<u8>], right: &mut [Vec<u8>]) -> Option<()> {
    for column in 0..left.len() {
        let pivot = Some(left[column][column]).filter(|pivot| *pivot != 0)?;
        let inverse = gf::div(1, pivot);
        for value in left[column].iter_mut().chain(&mut right[column]) {
            *value = gf::mul(*value, inverse);
        }
        let (pivot_left, pivot_right) = (left[column].clone(), right[column].clone());
        for row in (0..left.len()).filter(|row| *row != column) {
            let factor = left[row][column];
            add_row(&mut left[row], factor, &pivot_left);
            add_row(&mut right[row], factor, &pivot_right);
        }
    }
    Some(())
}

fn add_row(row: &mut [u8], factor: u8, other: &[u8]) {
    row.iter_mut().zip(other).for_each(|(value, other)| *value ^= gf::mul(factor, *other));
}

/// Each output becomes the sum of all inputs times the coefficients of its row.
fn combine(rows: &[&[u8]], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let longest = outputs.iter().map(|output| output.len()).max().unwrap_or(0);
    for begin in (0..longest).step_by(BLOCK_BYTES) {
        for (row, output) in rows.iter().zip(outputs.iter_mut()) {
            let end = (begin + BLOCK_BYTES).min(output.len());
            if begin < end {
                combine_block(row, inputs, begin, &mut output[begin..end]);
            }
        }
    }
}

fn combine_block(row: &[u8], inputs: &[&[u8]], begin: usize, output: &mut [u8]) {
    let mut is_set = false;
    for (factor, input) in row.iter().zip(inputs).filter(|(factor, _)| **factor != 0) {
        let input = input.get(begin..(begin + output.len()).min(input.len())).unwrap_or_default();
        if is_set {
            gf::add_times(*factor, input, &mut output[..input.len()]);
        } else if input.len() == output.len() {
            gf::set_times(*factor, input, output);
            is_set = true;
        } else {
            output.fill(0);
            gf::add_times(*factor, input, &mut output[..input.len()]);
            is_set = true;
        }
    }
    if !is_set {
        output.fill(0);
    }
}
