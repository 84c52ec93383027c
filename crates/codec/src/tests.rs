//! What is encoded comes back, byte for byte as it always lay on media, and bytes that are cut short are refused.

use super::*;

fn record() -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u8(1);
    out.put_u16(0x0302);
    out.put_u32(0x0706_0504);
    out.put_u64(0x0f0e_0d0c_0b0a_0908);
    out.put_i64(-2);
    out.put_u128(1 << 127);
    out.put_uint(0xff05_0403_0201, 5);
    out.put_bytes(b"ab");
    out.put_bytes("\u{e9}".as_bytes());
    out.put_u8(1);
    out.put_u32(2);
    out.extend_from_slice(b"rest");
    out
}

fn read(bytes: &[u8]) -> Result<(), Malformed> {
    let mut from = Decoder::new(bytes);
    assert_eq!((from.u8()?, from.u16()?, from.u32()?), (1, 0x0302, 0x0706_0504));
    assert_eq!((from.u64()?, from.i64()?, from.u128()?), (0x0f0e_0d0c_0b0a_0908, -2, 1 << 127));
    assert_eq!((from.uint(5)?, from.bytes()?, from.text()?), (0x05_0403_0201, &b"ab"[..], "\u{e9}".into()));
    assert_eq!((from.flag()?, from.count(2)?, from.left()), (true, 2, 4));
    assert!(from.end().is_err() && !from.is_empty());
    assert_eq!((from.take(1)?, from.as_slice(), from.rest(), from.left()), (&b"r"[..], &b"est"[..], &b"est"[..], 0));
    from.end()
}

#[test]
fn what_is_encoded_comes_back() {
    read(&record()).unwrap();
}

#[test]
fn bytes_are_little_endian_and_not_padded() {
    let mut wanted: Vec<u8> = (1..=15).collect();
    wanted.extend([254, 255, 255, 255, 255, 255, 255, 255]);
    wanted.extend([0; 15]);
    wanted.extend([128, 1, 2, 3, 4, 5]);
    wanted.extend(b"\x02\0\0\0ab\x02\0\0\0\xc3\xa9\x01\x02\0\0\0rest");
    assert_eq!(record(), wanted);
}

#[test]
fn records_that_are_cut_short_are_refused() {
    let record = record();
    for len in 0..record.len() - 4 {
        assert!(read(&record[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(Decoder::new(&[2]).flag(), Err(Malformed("a flag that is neither 0 nor 1")));
    assert_eq!(Decoder::new(b"\xff\xff\xff\xff....").count(0), Err(Malformed("a count past the end")));
    assert_eq!(Decoder::new(b"\x02\0\0\0....").count(3), Err(Malformed("a count past the end")));
    assert_eq!(Decoder::new(b"\x01\0\0\0\xff").text(), Err(Malformed("text that is not UTF-8")));
    assert_eq!(Decoder::new(b"\xff\xff\xff\xff").bytes(), Err(Malformed("it ends too early")));
}

#[test]
fn errors_are_the_rooms_own() {
    struct Named(&'static str);
    impl Subject for Named {
        type Error = String;
        fn malformed(&self, why: &'static str) -> String {
            format!("{}: {why}", self.0)
        }
    }
    let mut from: Decoder<'_, Named> = Decoder::of(Named("a test"), &[]);
    assert_eq!(from.u64(), Err("a test: it ends too early".to_owned()));
}

#[test]
fn headers_are_read_at_their_places() {
    let header: Vec<u8> = (0..32).collect();
    assert_eq!((u16_at(&header, 1), u32_at(&header, 2)), (0x0201, 0x0504_0302));
    assert_eq!(u64_at(&header, 3), 0x0a09_0807_0605_0403);
    assert_eq!(u128_at(&header, 16) >> 120, 31);
}
