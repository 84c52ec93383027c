//! Numbers at fixed places of a header. The header must be long enough: its length is checked once, before.

macro_rules! number_at {
    ($name:ident, $number:ty) => {
        #[doc = concat!("The `", stringify!($number), "` at this place.")]
        #[inline]
        pub fn $name(bytes: &[u8], at: usize) -> $number {
            <$number>::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
        }
    };
}

number_at!(u16_at, u16);
number_at!(u32_at, u32);
number_at!(u64_at, u64);
number_at!(u128_at, u128);
