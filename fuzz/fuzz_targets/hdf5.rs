//! The HDF5 view's decoders: records, or chunks that went through filters.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if env!("CARGO_BIN_NAME") == "hdf5_filters" {
        cenote_hdf5::fuzz::filters(bytes);
    } else {
        cenote_hdf5::fuzz::records(bytes);
    }
});
