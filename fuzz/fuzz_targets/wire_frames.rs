//! Frames of any content never panic, and messages are whole or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut assembly = cenote_wire::Assembly::default();
    for frame in bytes.split(|byte| *byte == 0xff) {
        if assembly.take(frame, |message| cenote_wire::decode_request(message).is_ok()).is_err() {
            return;
        }
    }
});
