//! Names of sources: `%b` stands for the number of a block, `%%` for a percent sign.

use std::borrow::Cow;

/// The name of the source of block `number`.
pub fn of_block(name: &[u8], number: u64) -> Cow<'_, [u8]> {
    if !name.contains(&b'%') {
        return Cow::Borrowed(name);
    }
    let (mut out, mut bytes) = (Vec::new(), name.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => match bytes.next() {
                Some(b'b') => out.extend_from_slice(number.to_string().as_bytes()),
                other => out.extend(other),
            },
            byte => out.push(*byte),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_where_percent_b_is() {
        assert_eq!(&*of_block(b"f-%b-%b.h5", 12), b"f-12-12.h5");
        assert_eq!(&*of_block(b"100%%b", 7), b"100%b");
        assert_eq!(&*of_block(b"plain", 7), b"plain");
    }
}
