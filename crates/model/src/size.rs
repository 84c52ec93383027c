//! Sizes in bytes, as people write and read them: `4096`, `64KiB`, `1.5G`, `2 GB`.

/// Parses a size. `K`, `KiB`, `M`, … are powers of 1024; `kB`, `KB`, `MB`, … powers of 1000, as in the standards.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (text[..split].replace('_', ""), text[split..].trim());
    let factor = factor(unit).ok_or_else(|| format!("`{unit}` is not a unit; use B, KiB, MiB, GiB, TiB or PiB"))?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("`{text}` is more than 2^64 bytes"));
    }
    let value: f64 = number.parse().map_err(|_| format!("`{text}` is not a size such as 4096, 64KiB or 1.5GiB"))?;
    let bytes = (value * factor as f64).round();
    // 2^64 itself is the first float that does not fit.
    if bytes < 18_446_744_073_709_551_616.0 {
        Ok(bytes as u64)
    } else {
        Err(format!("`{text}` is more than 2^64 bytes"))
    }
}

fn factor(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    let (letter, decimal) = match lower.as_str() {
        "" | "b" => return Some(1),
        other => match other.strip_suffix("ib").or_else(|| (other.len() == 1).then_some(other)) {
            Some(letter) => (letter, false),
            None => (other.strip_suffix('b')?, true),
        },
    };
    let power = 1 + ["k", "m", "g", "t", "p", "e"].iter().position(|known| *known == letter)? as u32;
    Some(if decimal { 1000_u64.pow(power) } else { 1024_u64.pow(power) })
}

/// Formats a size for a person: `0 B`, `4.0 KiB`, `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// Formats a count for a person: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("64KiB", 65536),
            ("1 MiB", 1 << 20),
            ("1.5G", 3 << 29),
            ("2GB", 2_000_000_000),
            ("1_000b", 1000),
            ("16EiB", u64::MAX),
        ] {
            if bytes == u64::MAX {
                assert!(parse(text).unwrap_err().contains("2^64"), "{text}");
            } else {
                assert_eq!(parse(text), Ok(bytes), "{text}");
            }
        }
        for text in ["", "GiB", "-1", "1.2.3K", "1XiB", "12 apples", "1e3", "99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back_nearly_the_same() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.0 KiB");
        assert_eq!(human((1 << 20) - 1), "1.0 MiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
        for shift in 0..63 {
            let bytes = (1_u64 << shift) + (1 << shift) / 3;
            let back = parse(&human(bytes)).unwrap();
            assert!(back.abs_diff(bytes) <= bytes / 10, "{bytes} {back}");
        }
    }

    #[test]
    fn counts_have_commas() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1234), "1,234");
        assert_eq!(count(1_234_567), "1,234,567");
    }
}
