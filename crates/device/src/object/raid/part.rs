//! The file of one part: what its name says, its head, and checksums of its bytes. `docs/format.md` has the tables.

use bytes::Bytes;
use cenote_codec::{u16_at, u32_at, u64_at, u128_at};
use cenote_model::{DeviceId, StoreId, combine_sums};
use xxhash_rust::xxh3::Xxh3;

use super::shape::Shape;
use crate::sums::sum_of;

const MAGIC: [u8; 8] = *b"CENOTPRT";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 128;
/// Heads are padded to this, so that data begin at a page.
const HEAD_ALIGN: usize = 4096;
/// Bytes under one checksum.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;

/// Whose parts these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The store.
    pub store: StoreId,
    /// The tier, as the store numbers it.
    pub device: DeviceId,
}

/// One put of an object. The id is from key and content, so the same put has the same one, and parts of two puts are
/// never taken for parts of one object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Edition {
    pub shape: Shape,
    pub id: u64,
}

impl Edition {
    pub fn of(owner: Owner, key: &str, shape: Shape, content: &[Bytes]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&owner.store.0.to_le_bytes());
        hash.update(&owner.device.0.to_le_bytes());
        hash.update(&[shape.data, shape.parity, shape.unit_log2, 0]);
        hash.update(&shape.len.to_le_bytes());
        hash.update(key.as_bytes());
        hash.update(&[0]);
        for piece in content {
            hash.update(piece);
        }
        Self { shape, id: hash.digest() }
    }
}

/// What the name of a part's file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PartName {
    pub key: String,
    pub part: u8,
    pub edition: Edition,
}

impl PartName {
    /// `KEY@PART.DATA+PARITY.uUNIT.LENGTH.ID`: part, data, parity and the logarithm of the unit decimal, length and id
    /// hexadecimal.
    pub fn encode(&self) -> String {
        let Edition { shape, id } = self.edition;
        let Shape { data, parity, unit_log2, len } = shape;
        format!("{}@{}.{data}+{parity}.u{unit_log2}.{len:x}.{id:016x}", self.key, self.part)
    }
    /// `None` for names that are not of this form: files that are nobody's parts.
    pub fn decode(name: &str) -> Option<Self> {
        let (key, rest) = name.rsplit_once('@')?;
        let words: Vec<&str> = rest.split('.').collect();
        let [part, code, unit, len, id] = words[..] else { return None };
        let (data, parity) = code.split_once('+')?;
        let unit = unit.strip_prefix('u')?.parse().ok()?;
        let len = u64::from_str_radix(len, 16).ok()?;
        let shape = Shape::checked(data.parse().ok()?, parity.parse().ok()?, unit, len)?;
        let id = u64::from_str_radix(id, 16).ok()?;
        let this = Self { key: key.to_owned(), part: part.parse().ok()?, edition: Edition { shape, id } };
        // One name only for each part: no leading zeros or signs.
        (usize::from(this.part) < shape.parts() && this.encode() == name).then_some(this)
    }
    pub fn part_len(&self) -> u64 {
        self.edition.shape.part_len(usize::from(self.part))
    }
    /// Bytes before the data.
    pub fn head_bytes(&self) -> usize {
        let sums = self.part_len().div_ceil(BLOCK_BYTES) as usize;
        (FIXED_BYTES + self.key.len() + 4 * sums).next_multiple_of(HEAD_ALIGN)
    }

    /// The head for data with these checksums.
    pub fn encode_head(&self, owner: Owner, sums: &[u32]) -> Bytes {
        let mut out = vec![0; self.head_bytes()];
        let Edition { shape, id } = self.edition;
        let table = FIXED_BYTES + self.key.len();
        out[FIXED_BYTES..table].copy_from_slice(self.key.as_bytes());
        for (at, sum) in sums.iter().enumerate() {
            out[table + 4 * at..][..4].copy_from_slice(&sum.to_le_bytes());
        }
        let table_sum = sum_of(&out[FIXED_BYTES..table + 4 * sums.len()]);
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.head_bytes() as u32).to_le_bytes());
        out[16..32].copy_from_slice(&owner.store.0.to_le_bytes());
        out[32..34].copy_from_slice(&owner.device.0.to_le_bytes());
        out[34..38].copy_from_slice(&[self.part, shape.data, shape.parity, shape.unit_log2]);
        out[38..40].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        out[40..48].copy_from_slice(&shape.len.to_le_bytes());
        out[48..56].copy_from_slice(&self.part_len().to_le_bytes());
        out[56..64].copy_from_slice(&id.to_le_bytes());
        out[64..68].copy_from_slice(&(sums.len() as u32).to_le_bytes());
        out[68..72].copy_from_slice(&table_sum.to_le_bytes());
        let sum = sum_of(&out[..FIXED_BYTES - 4]);
        out[FIXED_BYTES - 4..FIXED_BYTES].copy_from_slice(&sum.to_le_bytes());
        out.into()
    }

    /// The checksums in a head, which must be that of this part.
    pub fn decode_head(&self, owner: Owner, head: &[u8]) -> Result<Vec<u32>, String> {
        if head.len() < self.head_bytes() {
            return Err(format!("its head ends after {} of {} bytes", head.len(), self.head_bytes()));
        }
        if head[..8] != MAGIC {
            return Err("it does not begin as a part does".into());
        }
        if sum_of(&head[..FIXED_BYTES - 4]).to_le_bytes() != head[FIXED_BYTES - 4..FIXED_BYTES] {
            return Err("the checksum of its head does not match".into());
        }
        let version = u32_at(head, 8);
        if version != VERSION {
            return Err(format!("it has version {version}; this program reads {VERSION}"));
        }
        if (u128_at(head, 16), u16_at(head, 32)) != (owner.store.0, owner.device.0) {
            return Err(format!("it is of tier {} of store {:032x}", u16_at(head, 32), u128_at(head, 16)));
        }
        let sums = self.part_len().div_ceil(BLOCK_BYTES) as usize;
        let table = FIXED_BYTES + self.key.len();
        // What the name says decides; the head must say the same.
        let expected = self.encode_head(owner, &[]);
        let same = |range: std::ops::Range<usize>| head[range.clone()] == expected[range];
        if !same(12..64) || u32_at(head, 64) as usize != sums || !same(FIXED_BYTES..table) {
            return Err("its head says otherwise than its name".into());
        }
        let end = table + 4 * sums;
        if sum_of(&head[FIXED_BYTES..end]) != u32_at(head, 68) {
            return Err("the checksum of its table does not match".into());
        }
        debug_assert!(u64_at(head, 48) == self.part_len());
        Ok((0..sums).map(|at| u32_at(head, table + 4 * at)).collect())
    }
}

/// The checksums of blocks of bytes that lie in several pieces.
pub(super) fn sums_of_pieces(pieces: &[Bytes]) -> Vec<u32> {
    let mut sums = Vec::new();
    let (mut sum, mut filled) = (0, 0);
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES as usize - filled));
            sum = if filled == 0 { sum_of(now) } else { combine_sums(sum, sum_of(now), now.len() as u32) };
            filled += now.len();
            rest = later;
            if filled == BLOCK_BYTES as usize {
                sums.push(sum);
                filled = 0;
            }
        }
    }
    if filled > 0 {
        sums.push(sum);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { store: StoreId(0xabc), device: DeviceId(7) };

    fn part() -> PartName {
        let shape = Shape::of(&"2+1".parse().unwrap(), 5_000_000);
        let edition = Edition::of(OWNER, "a/b-1", shape, &[Bytes::from_static(b"content")]);
        PartName { key: "a/b-1".into(), part: 2, edition }
    }

    #[test]
    fn names_come_back_and_others_are_nobodys() {
        let name = part().encode();
        assert_eq!(PartName::decode(&name), Some(part()));
        for bad in [
            "cenote-place",
            "a@0.2+1.u20.zz.0000000000000001",
            "a@3.2+1.u20.4c4b40.0000000000000001",
            "a@0.2+1.u20.4c4b40.1",
            "a@00.2+1.u20.4c4b40.0000000000000001",
            "a@0.2+1.u99.4c4b40.0000000000000001",
            "a@0.0+1.u0.1.0000000000000001",
            "a@0.2+1.u20.4c4b40.0000000000000001.x",
        ] {
            assert_eq!(PartName::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_every_damage_is_noticed() {
        let part = part();
        let sums: Vec<u32> = (0..part.part_len().div_ceil(BLOCK_BYTES) as u32).collect();
        let head = part.encode_head(OWNER, &sums);
        assert_eq!(part.decode_head(OWNER, &head).unwrap(), sums);
        let end = FIXED_BYTES + part.key.len() + 4 * sums.len();
        for at in 0..end {
            let mut bad = head.to_vec();
            bad[at] ^= 4;
            assert!(part.decode_head(OWNER, &bad).is_err(), "byte {at}");
        }
        assert!(part.decode_head(OWNER, &head[..100]).unwrap_err().contains("ends after 100"));
        let other = Owner { device: DeviceId(8), ..OWNER };
        assert!(part.decode_head(other, &head).unwrap_err().contains("tier 7"));
        let renamed = PartName { part: 1, ..part };
        assert!(renamed.decode_head(OWNER, &head).unwrap_err().contains("than its name"));
    }

    #[test]
    fn checksums_do_not_depend_on_how_bytes_lie() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let whole: Vec<u32> = bytes.chunks(BLOCK_BYTES as usize).map(sum_of).collect();
        for piece in [1000, 4096, 65_536, 70_000, 200_000] {
            let pieces: Vec<Bytes> = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
            assert_eq!(sums_of_pieces(&pieces), whole, "{piece}");
        }
        assert!(sums_of_pieces(&[]).is_empty());
    }

    #[test]
    fn an_edition_is_its_content() {
        let shape = Shape::of(&"mirror=2".parse().unwrap(), 6);
        let of = |key: &str, parts: &[&'static [u8]]| {
            let parts: Vec<Bytes> = parts.iter().map(|part| Bytes::from_static(part)).collect();
            Edition::of(OWNER, key, shape, &parts)
        };
        assert_eq!(of("k", &[b"abc", b"def"]), of("k", &[b"ab", b"cdef"]));
        assert_ne!(of("k", &[b"abcdef"]), of("k", &[b"abcdeg"]));
        assert_ne!(of("k", &[b"abcdef"]), of("l", &[b"abcdef"]));
    }
}
