//! Decoders of a store's records and chunks, as functions of bytes for fuzzing: other processes wrote those bytes.
//! Called by the test below and by libFuzzer (`make fuzz`); nothing else uses them.

use crate::data::filter::{DEFLATE, FLETCHER32, Filter, LZF, Pipeline, SHUFFLE};
use crate::meta::header::{Body, Header};
use crate::meta::{attrs, links, maps};

/// Decodes a record of any kind. A header must survive a round trip.
pub fn records(bytes: &[u8]) {
    if let Ok(header) = Header::decode(bytes) {
        if let Body::Dataset { extent, .. } = &header.body {
            extent.npoints();
        }
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
    attrs::fuzz(bytes);
    crate::file::writers::fuzz(bytes);
    links::fuzz(bytes);
    maps::fuzz(bytes);
}

/// Decodes a chunk: the first bytes choose its filters and their parameters.
pub fn filters(bytes: &[u8]) {
    let Some((head, stored)) = bytes.split_first_chunk::<4>() else { return };
    let filter = |which: u8| Filter {
        id: [DEFLATE, SHUFFLE, FLETCHER32, LZF][usize::from(which) % 4],
        flags: 0,
        params: vec![u32::from(which >> 2)],
    };
    let count = usize::from(head[0]) % 40;
    let pipeline = Pipeline { filters: head[1..3].iter().cycle().take(count).map(|which| filter(*which)).collect() };
    let raw_len = usize::from(head[3]) << 8;
    if let Ok(raw) = pipeline.decode(stored.to_vec(), 0, raw_len, false) {
        assert_eq!(raw.len(), raw_len);
    }
}

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    use crate::props::{GroupProps, ObjectProps};
    let object = ObjectProps { track_times: true, attr_order: 3, attr_phase: (8, 6) };
    let group = Body::Group(GroupProps {
        object: object.clone(),
        link_order: 1,
        link_phase: (8, 6),
        est_link_info: (4, 8),
        heap_size_hint: 0,
    });
    let map = Body::Map { key: vec![2; 9], value: vec![3; 5], props: object.clone() };
    let datatype = Body::Datatype { dtype: vec![1; 20], props: object };
    let mut all: Vec<Vec<u8>> =
        [group, map, datatype].map(|body| Header { born_unix_s: 5, body }.encode()).into_iter().collect();
    // A dataset: type, committed, properties (chunked, one filter), extent.
    let mut dataset = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    dataset.extend([1, 0, 0, 0, 0, 8, 0, 0, 0, 6, 0, 0, 0, 2, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    dataset.extend([1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    dataset.extend([1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 2, 1]);
    dataset.extend([9, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    all.push(dataset);
    for (id, which) in [(DEFLATE, 0u8), (SHUFFLE, 9), (FLETCHER32, 2), (LZF, 3)] {
        let pipeline = Pipeline { filters: vec![Filter { id, flags: 0, params: vec![u32::from(which >> 2)] }] };
        let raw: Vec<u8> = (0..512u32).map(|i| (i / 9) as u8).collect();
        if let Ok((stored, _)) = pipeline.encode(&raw, 0) {
            all.push([&[1, which, which, 2][..], &stored].concat());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_bytes_make_a_decoder_panic() {
        let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_nanos() as u64)
        });
        println!("CENOTE_SEED={seed}");
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below.max(1)
        };
        let seeds = super::seeds();
        for seed in &seeds {
            super::records(seed);
            super::filters(seed);
        }
        for _ in 0..60_000 {
            let mut bytes = seeds[random(seeds.len() as u64) as usize].clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len() as u64) as usize;
                match random(5) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, random(256) as u8),
                    2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5) as usize],
                    3 if at + 8 <= bytes.len() => bytes[at..at + 8].fill(0xff),
                    _ if at < bytes.len() => bytes[at] ^= 1 << random(8),
                    _ => {}
                }
            }
            super::records(&bytes);
            super::filters(&bytes);
        }
    }
}
