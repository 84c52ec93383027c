//! What decodes as a greeting survives its own round trip; nothing makes the decoder panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(greeting) = cenote_wire::decode_greeting(bytes) {
        let mut again = Vec::new();
        cenote_wire::encode_greeting(&greeting, &mut again);
        assert_eq!(cenote_wire::decode_greeting(&again).unwrap(), greeting);
    }
});
