//! A layout as a user writes it: `plain`, `stripe=4,unit=1MiB`, `mirror=2`, `4+2,unit=256KiB,domain=device`.

use std::fmt;
use std::str::FromStr;

use cenote_model::{Error, ErrorKind, Result, size};

/// Most parts of one stripe: the number of non-zero elements of GF(2^8), in which parity is computed.
pub const PARTS_MAX: u16 = 255;
/// Bytes of a stripe that lie together on one place, unless the user says otherwise.
pub const UNIT_BYTES_DEFAULT: u64 = 1 << 20;
/// Least unit: the allocation unit of file tiers.
pub const UNIT_BYTES_MIN: u64 = 4 << 10;
/// Largest unit.
pub const UNIT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of an object that a layout without units (plain, mirror) places together.
pub const SPAN_BYTES: u64 = 64 << 20;

/// What is lost together: no two parts of one stripe lie in one domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Domain {
    /// A node with all its devices.
    #[default]
    Node,
    /// One device.
    Device,
}

impl Domain {
    /// The word for so many of them.
    pub fn words(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::Node, 1) => "node",
            (Self::Node, _) => "nodes",
            (Self::Device, 1) => "device",
            (Self::Device, _) => "devices",
        }
    }
}

/// How bytes are spread over parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// All bytes once, in one part.
    Plain,
    /// Units in turns over so many parts, each once.
    Stripe {
        /// Number of parts, 2 to 255.
        width: u8,
    },
    /// The same bytes in so many parts.
    Mirror {
        /// Number of copies, 2 to 255.
        copies: u8,
    },
    /// Units in turns over the data parts, and parity of each stripe: any `data` of all parts give the bytes.
    Coded {
        /// Number of data parts (k), at least 2.
        data: u8,
        /// Number of parity parts (m), at least 1; `data + parity` is at most 255.
        parity: u8,
    },
}

impl fmt::Display for Scheme {
    /// As a user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Stripe { width } => write!(f, "stripe={width}"),
            Self::Mirror { copies } => write!(f, "mirror={copies}"),
            Self::Coded { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

/// How an object's bytes are kept. Made by [`Layout::new`] or parsed, so that it is always valid.
///
/// ```
/// # use cenote_layout::{Domain, Layout, Scheme};
/// let layout: Layout = "4+2,unit=256KiB,domain=device".parse().unwrap();
/// assert_eq!((layout.parts(), layout.losses_max(), layout.stripe_bytes()), (6, 2, 1 << 20));
/// assert_eq!(layout.to_string(), "4+2,unit=256KiB,domain=device");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    scheme: Scheme,
    unit_bytes: u64,
    domain: Domain,
}

impl Default for Layout {
    fn default() -> Self {
        Self { scheme: Scheme::Plain, unit_bytes: UNIT_BYTES_DEFAULT, domain: Domain::Node }
    }
}

fn refuse(text: &str, cause: impl Into<String>, next: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("layout `{text}`")).because(cause).try_next(next)
}

const FORMS: &str =
    "write plain, stripe=4, mirror=2 or 4+2, then unit=256KiB and domain=node or domain=device if wanted";

impl Layout {
    /// A layout of this scheme. Schemes without units (plain, mirror) take [`UNIT_BYTES_DEFAULT`].
    ///
    /// # Errors
    /// `InvalidInput` if a number of parts is 0, is what a plainer scheme means, or is more than 255 together, or if the
    /// unit is not a power of two from 4 KiB to 1 GiB.
    pub fn new(scheme: Scheme, unit_bytes: u64, domain: Domain) -> Result<Self> {
        let layout = Self { scheme, unit_bytes, domain };
        layout.check().map_err(|(cause, next)| refuse(&layout.to_string(), cause, next))?;
        Ok(layout)
    }

    fn check(&self) -> Result<(), (String, &'static str)> {
        self.check_parts()?;
        let (unit, has_units) = (self.unit_bytes, self.has_units());
        if !has_units && unit != UNIT_BYTES_DEFAULT {
            return Err(("only stripe and k+m have units".into(), "leave unit= out"));
        }
        if !unit.is_power_of_two() {
            return Err((format!("a unit of {unit} bytes is not a power of two"), "write for example unit=256KiB"));
        }
        if !(UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&unit) {
            return Err((format!("a unit of {unit} bytes is out of bounds"), "choose from 4KiB to 1GiB"));
        }
        Ok(())
    }

    fn check_parts(&self) -> Result<(), (String, &'static str)> {
        match self.scheme {
            Scheme::Stripe { width: 0 } => {
                Err(("a stripe over 0 parts holds nothing".into(), "write stripe=2 or more"))
            }
            Scheme::Mirror { copies: 0 } => Err(("0 copies hold nothing".into(), "write mirror=2 or more")),
            Scheme::Coded { data: 0, .. } => Err(("0 data parts hold nothing".into(), "write for example 4+2")),
            Scheme::Stripe { width: 1 } => Err(("a stripe over one part is no stripe".into(), "write plain")),
            Scheme::Mirror { copies: 1 } => Err(("one copy is no mirror".into(), "write plain")),
            Scheme::Coded { parity: 0, .. } => {
                Err(("without parity parts it is a stripe".into(), "write stripe=, or at least one parity part"))
            }
            Scheme::Coded { data: 1, .. } => {
                Err(("parity of one data part is a copy of it".into(), "write mirror=, with the number of all copies"))
            }
            Scheme::Coded { data, parity } if u16::from(data) + u16::from(parity) > PARTS_MAX => {
                Err((format!("{} parts are more than 255", u16::from(data) + u16::from(parity)), "use fewer parts"))
            }
            _ => Ok(()),
        }
    }

    /// How bytes are spread.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }
    /// Bytes of a stripe that lie together on one place.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }
    /// What is lost together.
    pub fn domain(&self) -> Domain {
        self.domain
    }
    /// The same layout in this failure domain.
    #[must_use]
    pub fn in_domain(self, domain: Domain) -> Self {
        Self { domain, ..self }
    }
    /// Returns true for schemes that cut bytes into units.
    pub fn has_units(&self) -> bool {
        matches!(self.scheme, Scheme::Stripe { .. } | Scheme::Coded { .. })
    }
    /// Parts of a stripe, on as many places.
    pub fn parts(&self) -> usize {
        match self.scheme {
            Scheme::Plain => 1,
            Scheme::Stripe { width } => usize::from(width),
            Scheme::Mirror { copies } => usize::from(copies),
            Scheme::Coded { data, parity } => usize::from(data) + usize::from(parity),
        }
    }
    /// Parts of a stripe among which the bytes of the object take turns.
    pub fn data_parts(&self) -> usize {
        match self.scheme {
            Scheme::Plain | Scheme::Mirror { .. } => 1,
            Scheme::Stripe { width } => usize::from(width),
            Scheme::Coded { data, .. } => usize::from(data),
        }
    }
    /// How many domains can be lost and all bytes remain.
    pub fn losses_max(&self) -> usize {
        match self.scheme {
            Scheme::Plain | Scheme::Stripe { .. } => 0,
            Scheme::Mirror { copies } => usize::from(copies) - 1,
            Scheme::Coded { parity, .. } => usize::from(parity),
        }
    }
    /// Bytes of the object in a full stripe: the whole span for schemes without units.
    pub fn stripe_bytes(&self) -> u64 {
        if self.has_units() { self.unit_bytes * self.data_parts() as u64 } else { SPAN_BYTES }
    }
    /// The layout of a stripe that is not full yet: as many copies as survive the same losses, so that parity is never
    /// changed in place. Layouts without parity stay as they are.
    #[must_use]
    pub fn fresh(&self) -> Self {
        match self.scheme {
            Scheme::Coded { parity, .. } => Self {
                scheme: Scheme::Mirror { copies: parity + 1 },
                unit_bytes: UNIT_BYTES_DEFAULT,
                domain: self.domain,
            },
            _ => *self,
        }
    }
}

impl fmt::Display for Layout {
    /// As a user writes it; what is the default is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scheme)?;
        if self.unit_bytes != UNIT_BYTES_DEFAULT {
            write!(f, ",unit={}", exact(self.unit_bytes))?;
        }
        if self.domain == Domain::Device {
            f.write_str(",domain=device")?;
        }
        Ok(())
    }
}

/// A size in the largest unit that gives a whole number.
fn exact(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |(cause, next): (String, &'static str)| refuse(text, cause, next);
        let mut words = text.split(',').map(str::trim);
        let scheme = parse_scheme(words.next().unwrap_or_default()).map_err(refused)?;
        let mut layout = Self { scheme, ..Self::default() };
        let (mut unit_seen, mut domain_seen) = (false, false);
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let seen = match name.trim() {
                "unit" => &mut unit_seen,
                "domain" => &mut domain_seen,
                other => return Err(refused((format!("`{other}` is no option of a layout"), FORMS))),
            };
            if std::mem::replace(seen, true) {
                return Err(refused((format!("`{}` is there twice", name.trim()), "leave one out")));
            }
            layout.set(name.trim(), value.trim()).map_err(refused)?;
        }
        if unit_seen && !layout.has_units() {
            return Err(refused(("only stripe and k+m have units".into(), "leave unit= out")));
        }
        layout.check().map_err(refused)?;
        Ok(layout)
    }
}

impl Layout {
    fn set(&mut self, name: &str, value: &str) -> Result<(), (String, &'static str)> {
        match (name, value) {
            ("unit", _) => {
                self.unit_bytes = size::parse(value).map_err(|cause| (cause, "write for example unit=256KiB"))?;
            }
            (_, "node") => self.domain = Domain::Node,
            (_, "device") => self.domain = Domain::Device,
            (_, other) => {
                return Err((format!("`{other}` is no failure domain"), "write domain=node or domain=device"));
            }
        }
        Ok(())
    }
}

fn parse_scheme(text: &str) -> Result<Scheme, (String, &'static str)> {
    if text == "plain" {
        return Ok(Scheme::Plain);
    }
    if let Some((data, parity)) = text.split_once('+') {
        return Ok(Scheme::Coded { data: parse_parts(data)?, parity: parse_parts(parity)? });
    }
    match text.split_once('=') {
        Some(("stripe", width)) => Ok(Scheme::Stripe { width: parse_parts(width)? }),
        Some(("mirror", copies)) => Ok(Scheme::Mirror { copies: parse_parts(copies)? }),
        _ => Err((format!("`{text}` is no scheme"), FORMS)),
    }
}

fn parse_parts(text: &str) -> Result<u8, (String, &'static str)> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err((format!("`{text}` is not a number of parts"), FORMS));
    }
    let too_many = |_| (format!("{text} parts are more than 255"), "use fewer parts");
    text.parse::<u8>().map_err(too_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_printed_as_they_are_written() {
        for text in [
            "plain",
            "plain,domain=device",
            "stripe=4",
            "stripe=4,unit=64KiB",
            "mirror=2",
            "mirror=255",
            "4+2",
            "254+1",
        ] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
        for (written, printed) in [
            (" 4+2 , domain=node , unit=1M", "4+2"),
            ("4+2,domain=device,unit=262144", "4+2,unit=256KiB,domain=device"),
            ("stripe=2,unit=1GiB", "stripe=2,unit=1GiB"),
        ] {
            assert_eq!(written.parse::<Layout>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn bad_layouts_are_refused_by_name() {
        for (text, cause) in [
            ("", "`` is no scheme"),
            ("raid6", "`raid6` is no scheme"),
            ("0+2", "0 data parts"),
            ("4+0", "without parity parts it is a stripe"),
            ("1+2", "a copy of it"),
            ("stripe=0", "over 0 parts"),
            ("stripe=1", "no stripe"),
            ("mirror=0", "0 copies"),
            ("mirror=1", "no mirror"),
            ("mirror=256", "256 parts are more than 255"),
            ("200+56", "256 parts are more than 255"),
            ("4+", "`` is not a number"),
            ("4+-2", "`-2` is not a number"),
            ("+4+2", "`` is not a number"),
            ("mirror=two", "`two` is not a number"),
            ("4+2,unit=3000", "not a power of two"),
            ("4+2,unit=0", "not a power of two"),
            ("4+2,unit=2KiB", "out of bounds"),
            ("4+2,unit=2GiB", "out of bounds"),
            ("4+2,unit=big", "`big` is not a unit"),
            ("mirror=2,unit=1MiB", "only stripe and k+m have units"),
            ("4+2,domain=rack", "`rack` is no failure domain"),
            ("4+2,domain", "`` is no failure domain"),
            ("4+2,copies=3", "`copies` is no option"),
            ("4+2,", "`` is no option"),
            ("4+2,unit=1MiB,unit=2MiB", "`unit` is there twice"),
        ] {
            let error = text.parse::<Layout>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.cause().contains(cause), "{error}");
            assert!(error.subject() == format!("layout `{text}`") && !error.next_step().is_empty(), "{error}");
        }
        assert!(Layout::new(Scheme::Coded { data: 4, parity: 0 }, UNIT_BYTES_DEFAULT, Domain::Node).is_err());
        assert!(Layout::new(Scheme::Plain, UNIT_BYTES_MIN, Domain::Node).is_err());
    }

    #[test]
    fn a_fresh_stripe_survives_the_same_losses() {
        for text in ["plain", "stripe=4", "mirror=3", "4+2,domain=device", "2+253,unit=4KiB"] {
            let layout: Layout = text.parse().unwrap();
            let fresh = layout.fresh();
            assert_eq!((fresh.losses_max(), fresh.domain()), (layout.losses_max(), layout.domain()), "{text}");
            assert!(Layout::new(fresh.scheme(), fresh.unit_bytes(), fresh.domain()).is_ok(), "{text}");
        }
    }
}
