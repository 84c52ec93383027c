//! What decodes as a response survives its own round trip; nothing makes the decoder panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((seq, value)) = cenote_wire::decode_response(bytes) {
        let mut again = Vec::new();
        cenote_wire::encode_response(seq, &value, &mut again);
        assert_eq!(cenote_wire::decode_response(&again).unwrap(), (seq, value));
    }
});
