//! What decodes as a request survives its own round trip; nothing makes the decoder panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((seq, value)) = cenote_wire::decode_request(bytes) {
        let mut again = Vec::new();
        cenote_wire::encode_request(seq, &value, &mut again);
        assert_eq!(cenote_wire::decode_request(&again).unwrap(), (seq, value));
    }
});
